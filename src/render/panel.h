#pragma once
// What a picture shows: a schedule, when everything of it runs, and its sums.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/costs.h"

namespace chimera {

/// The figures by which schedules are compared, of one pipeline group.
struct Totals {
  double weight_copies = 0;      // most weights on one worker, in shares of one copy of the model
  double peak_units = 0;         // most activations on one worker, in those of a full micro-batch on its whole share
  std::int64_t messages = 0;     // between workers
  double message_volume = 0;     // of all messages; the tensor between two stages for a full micro-batch is 1
  double all_reduce_volume = 0;  // what all workers send to sum gradients; the gradients of one stage are 1
  std::optional<double> message_bytes = std::nullopt;  // the two volumes in bytes, where the costs say them
  std::optional<double> all_reduce_bytes = std::nullopt;
  std::optional<double> makespan_with_all_reduce = std::nullopt;  // unknown without costs of all-reduces
};

/// Sums up what simulate() and explain() found at these costs. Copies of a stage sum their gradients by Rabenseifner's
/// algorithm: each of r workers sends 2(r-1)/r of them.
/// Source: Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004.
[[nodiscard]] Totals totals_of(const Schedule& schedule, const Timeline& timeline, const Explanation& explanation,
                               const CostModel& costs);

/// One schedule in a picture. Parts of the explanation may be empty: they are not drawn.
struct Panel {
  std::string title;
  Schedule schedule;
  Timeline timeline;
  Explanation explanation;
  Totals totals;
  bool memory_in_bytes = false;  // the explanation's memory; stage units otherwise
};

/// The panel of a simulated schedule, entitled by its name and shape.
[[nodiscard]] Panel panel_of(Schedule schedule, Timeline timeline, const CostModel& costs);

/// `1.5 GiB`, in at most four digits.
[[nodiscard]] std::string bytes_text(double bytes);
/// `96 tensors` or `12 MiB`: the volume of all messages.
[[nodiscard]] std::string message_volume_text(const Totals& totals);
/// `8 stage gradients` or `1.5 GiB`: the volume of all all-reduces.
[[nodiscard]] std::string all_reduce_volume_text(const Totals& totals);

/// A table with a line for each panel: makespans (to the end of the last op, and of all-reduces and updates), totals,
/// and how the makespan compares with the first panel's.
[[nodiscard]] std::string comparison(const std::vector<Panel>& panels);

}  // namespace chimera
