#pragma once

// How much longer a step of a plan takes if a worker is lost and the job goes on without it (`--recover reroute`).

#include <cstdint>
#include <vector>

#include "plan/predict.h"

namespace chimera {

/// Returns [worker of a group]: the time of a step without this worker, divided by the time of a step with all workers.
/// Both are simulated with the plan's times of ops and its latency, without bandwidth and all-reduces. 0: a stage has
/// no other holder. Empty: the schedule is asynchronous, or has too many ops to try all workers quickly.
[[nodiscard]] std::vector<double> slowdowns_without_worker(const PlannedSchedule& planned, std::int64_t data_parallel);

}  // namespace chimera
