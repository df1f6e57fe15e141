#pragma once
// What every picture of a schedule takes: the schedule with its times, explanation and totals. text.h, svg.h, html.h
// and perfetto.h draw panels or their parts.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/printable.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/costs.h"

namespace chimera {

/// Totals of a pipeline group, to compare schedules.
struct Totals {
  double weight_copies = 0;                            // Maximum of the weights on a worker, as a fraction of the model
  double peak_units = 0;                               // Maximum of the activations on a worker, in stage units
  std::int64_t messages = 0;                           // Number of messages between workers
  double message_volume = 0;                           // Volume in tensors between two stages for a full micro-batch
  double all_reduce_volume = 0;                        // Sent by all workers, in units of a stage's gradients
  std::optional<double> message_bytes = std::nullopt;  // The two volumes in bytes, if the costs give them
  std::optional<double> all_reduce_bytes = std::nullopt;
  std::optional<double> makespan_with_all_reduce = std::nullopt;  // Empty without costs of all-reduces
};

/// Computes totals from the results of simulate() and explain() at these costs. Each of r copies of a stage sends
/// 2(r-1)/r of its gradients in an all-reduce. Source: Rabenseifner, "Optimization of Collective Reduction Operations",
/// ICCS 2004.
[[nodiscard]] Totals totals_of(const Schedule& schedule, const Timeline& timeline, const Explanation& explanation,
                               const CostModel& costs);

/// A schedule in a picture. Empty parts of the explanation are not drawn.
struct Panel {
  std::string title;
  Schedule schedule;
  Timeline timeline;
  Explanation explanation;
  Totals totals;
  bool memory_in_bytes = false;  // Bytes or stage units in the explanation
};

/// Returns the panel of a simulated schedule, titled by its name and shape.
[[nodiscard]] Panel panel_of(Schedule schedule, Timeline timeline, const CostModel& costs);

/// Examples: `96 tensors`, `12 MiB`.
[[nodiscard]] std::string message_volume_text(const Totals& totals);
/// Examples: `8 stage gradients`, `1.5 GiB`.
[[nodiscard]] std::string all_reduce_volume_text(const Totals& totals);

/// Returns a table with one line per panel: makespans without and with all-reduces and updates, change from the first
/// panel, and totals.
[[nodiscard]] std::string comparison(const std::vector<Panel>& panels);

}  // namespace chimera
