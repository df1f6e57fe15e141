#pragma once

// Assigns micro-batches of unequal work to the micro-batches of a schedule, here called *places*. The assignment
// changes only the samples of the ops at a place, neither programs nor messages. A step with long and short documents
// gets faster if the micro-batches with most work are at places where the pipeline has time for them.

#include "schedule/schedule.h"
#include "simulate/costs.h"

namespace chimera {

/// Returns [place]: the micro-batch of the data for it, so that a step of the synchronous schedule is fast.
/// CostModel::micro_batches has the work of each micro-batch of the data. Tries swaps of two micro-batches until a
/// fixed number of ops is timed; ignores contention of links, all-reduces, updates and the overlap of pairs.
/// Deterministic. It is never slower by simulate() than the identity. Throws ConfigError if the schedule is
/// asynchronous, or a cost is invalid (CostTable).
[[nodiscard]] std::vector<std::int64_t> permuted_micro_batches(const Schedule& schedule, const CostModel& costs);

/// Returns [place]: the work of the micro-batch at this place, for CostModel::micro_batches. `work` is by micro-batch
/// of the data.
[[nodiscard]] std::vector<double> work_of_places(const std::vector<double>& work,
                                                 const std::vector<std::int64_t>& micro_batch_of_place);

}  // namespace chimera
