#pragma once
// Measured times as costs: what `simulate` is fed to predict the step, and what --op-times writes.

#include <vector>

#include "simulate/costs.h"
#include "train/loop/trainer.h"
#include "train/observe/measured_step.h"

namespace chimera {

/// Means of the run's ops and recomputations by one of the clocks, in seconds, for full micro-batches.
[[nodiscard]] CostModel measured_op_costs(const Job& job, const OpTimes& times, double Duration::*clock);

/// The same by the wall clock, and from the recorded steps (at least one, of all groups: [step][group]) what else a
/// step takes: the median latency of messages whose receiver was waiting already, from the end of the op that makes
/// them; the mean of each stage's all-reduces, where it has several copies; and of each stage's share of its workers'
/// optimizer step, by its parameters.
[[nodiscard]] CostModel measured_costs(const Job& job, const OpTimes& times,
                                       const std::vector<std::vector<MeasuredStep>>& steps);

}  // namespace chimera
