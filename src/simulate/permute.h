#pragma once

// Places of micro-batches of unequal work. A *place* is a micro-batch of the schedule. Which micro-batch of the data
// stands there changes only the samples of its ops, neither programs nor messages. So a step with long and short
// documents gets faster if heavy micro-batches stand where the pipeline has time for them.

#include "schedule/schedule.h"
#include "simulate/costs.h"

namespace chimera {

/// Returns [place]: the micro-batch of the data for this place, so that the synchronous schedule is fast.
/// CostModel::micro_batches has the work of each micro-batch of the data. Swaps pairs of micro-batches a fixed number
/// of times; ignores contention of links, all-reduces, updates and the overlap of pairs. Deterministic. It is never
/// slower by simulate() than the identity. Throws ConfigError if the schedule is asynchronous, or as CostTable does.
[[nodiscard]] std::vector<std::int64_t> permuted_micro_batches(const Schedule& schedule, const CostModel& costs);

/// Returns [place]: the work of the micro-batch that stands there, for CostModel::micro_batches. `work` is by
/// micro-batch of the data.
[[nodiscard]] std::vector<double> work_of_places(const std::vector<double>& work,
                                                 const std::vector<std::int64_t>& micro_batch_of_place);

}  // namespace chimera
