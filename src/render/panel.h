#pragma once
// The input of every picture of a schedule. A Panel is one schedule with its simulated or measured times, their
// explanation (bubbles, messages, memory) and totals. text.h, svg.h, html.h and perfetto.h draw panels or their parts.

#include "core/printable.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/costs.h"

namespace chimera {

/// Totals of a schedule (of one data-parallel group), to compare schedules. A *stage unit* is the activations of one
/// full micro-batch on 1/D of the model's layers, where D is the number of workers.
struct Totals {
  double weight_copies = 0;      // Weights on the worker with most, with all versions; unit: 1/D of the model
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

/// Returns the direction of a replica (one of the schedule's copies of the model) by its first D stages, where D is the
/// number of workers: "down" if each next stage is on the next worker (worker 0 comes after the last one), "up" if it
/// is on the previous worker, else "".
[[nodiscard]] std::string direction(const Schedule& schedule, std::size_t replica);

/// Returns a name of a replica for pictures. Examples: `down`, `up`, `replica 2`.
[[nodiscard]] std::string replica_name(const Schedule& schedule, std::size_t replica);

/// Returns the timeline of a picture as in the Chimera paper, where all ops have the same length, a slot: an op takes
/// one slot, except a whole backward (B), which takes `whole_backward` slots. Every op starts as soon as possible. If
/// schedule.late_forwards, forwards start as late as possible instead.
[[nodiscard]] Timeline slot_timeline(const Schedule& schedule, double whole_backward = 1);

/// Returns the picture of a schedule with the timeline of slot_timeline().
[[nodiscard]] Panel paper_figure(const Schedule& schedule, double whole_backward = 1);

}  // namespace chimera
