#pragma once
// Schedules as text: the picture of the paper, one row a worker.

#include <string>

#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace chimera {

/// One row a worker, one cell a unit of time: stage, letter, micro-batch (`2F5`); `"` where the op goes on, `.` a
/// bubble. Beside the first rows, which micro-batches each replica takes, where there is more than one replica.
/// Where some time is not a whole number of units, each row is the worker's ops in order, without bubbles.
/// Source of the notation: torch.distributed.pipelining; of the picture: Li and Hoefler, SC'21, figure 3.
[[nodiscard]] std::string to_text(const Schedule& schedule, const Timeline& timeline, double unit = 1);

}  // namespace chimera
