#pragma once

// Places of micro-batches of unequal work. In which place of a schedule a micro-batch of the data stands changes only
// its samples there, neither programs nor messages. So a step with long and short documents gets faster if heavy
// micro-batches stand where the pipeline has time for them.

#include <cstdint>
#include <vector>

#include "schedule/schedule.h"
#include "simulate/costs.h"

namespace chimera {

/// Returns [id]: the micro-batch of the data for the place with this id, so that the synchronous schedule is fast.
/// CostModel::micro_batches has the work of each micro-batch of the data. Swaps pairs of micro-batches a fixed number
/// of times; ignores contention of links, all-reduces, updates and the overlap of pairs. Deterministic. It is never
/// slower by simulate() than the identity. Throws ConfigError if the schedule is asynchronous, or as CostTable does.
[[nodiscard]] std::vector<std::int64_t> permuted_micro_batches(const Schedule& schedule, const CostModel& costs);

/// Returns CostModel::micro_batches by place: the work of the micro-batch that stands there.
[[nodiscard]] std::vector<double> work_of_places(const std::vector<double>& work,
                                                 const std::vector<std::int64_t>& micro_batch_of_place);

}  // namespace chimera
