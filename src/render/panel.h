#pragma once
// The input of every picture of a schedule. A Panel is one schedule with its simulated or measured times, their
// explanation (bubbles, messages, memory) and totals. text.h, svg.h, html.h and perfetto.h draw panels or their parts.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/printable.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/costs.h"

namespace chimera {

/// Totals of a schedule (of one data-parallel group), to compare schedules. A *stage unit* is the activations of one
/// full micro-batch on 1/D of the model's layers, where D is the number of workers.
struct Totals {
  double weight_copies = 0;      // Weights on the worker with most, as a fraction of the model
  double peak_units = 0;         // Peak of activations on the worker with most, in stage units
  std::int64_t messages = 0;     // Number of messages between workers
  double message_volume = 0;     // Sent in messages; unit: the activations between two stages of a full micro-batch
  double all_reduce_volume = 0;  // Sent by all workers in all-reduces; unit: the gradients of a stage
  std::optional<double> message_bytes = std::nullopt;  // The two volumes in bytes, if the costs give sizes
  std::optional<double> all_reduce_bytes = std::nullopt;
  std::optional<double> makespan_with_all_reduce = std::nullopt;  // Empty without costs of all-reduces
};

/// Computes totals from the results of simulate() and explain() at these costs. If r workers hold a stage, each sends
/// 2(r-1)/r of its gradients in an all-reduce. Source: Rabenseifner, "Optimization of Collective Reduction Operations",
/// ICCS 2004.
[[nodiscard]] Totals totals_of(const Schedule& schedule, const Timeline& timeline, const Explanation& explanation,
                               const CostModel& costs);

/// A schedule in a picture. Empty fields of the explanation are not drawn.
struct Panel {
  std::string title;
  Schedule schedule;
  Timeline timeline;
  Explanation explanation;
  Totals totals;
  bool memory_in_bytes = false;  // Whether explanation.memory is in bytes; otherwise in stage units
};

/// Returns the panel of a simulated schedule, titled by its name and shape.
[[nodiscard]] Panel panel_of(Schedule schedule, Timeline timeline, const CostModel& costs);

/// Returns message_bytes or, without it, message_volume. Examples: `12 MiB`, `96 tensors`.
[[nodiscard]] std::string message_volume_text(const Totals& totals);
/// Returns all_reduce_bytes or, without it, all_reduce_volume. Examples: `1.5 GiB`, `8 stage gradients`.
[[nodiscard]] std::string all_reduce_volume_text(const Totals& totals);

/// Returns a table with one line per panel: the makespan without and with all-reduces and updates, its change from the
/// first panel, and the totals.
[[nodiscard]] std::string comparison_table(const std::vector<Panel>& panels);

}  // namespace chimera
