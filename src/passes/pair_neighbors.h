#pragma once
// Makes pairs of ops for `--pairs neighbors`. A pair is a forward and a backward of another micro-batch, one right
// after the other on the same worker. Both can run at the same time, and use hardware that one of them alone leaves
// idle (Pairs in schedule/schedule.h).

#include "schedule/schedule.h"

namespace chimera {

/// Returns the schedule with the same orders of ops, and with new pairs: every forward forms a pair with the op
/// directly after it, if this is a whole backward or an input gradient of another micro-batch. A pair starts only when
/// both ops have their inputs, so some pairs would deadlock. To find and remove them, the function runs the ops of all
/// workers until every worker is blocked. Then it takes the first worker whose next op begins a pair and has its
/// inputs, and removes this pair. It repeats both until all ops have run.
///
/// Leaves a schedule unchanged if it is asynchronous or runs micro-batches in slices of their tokens. Requires a
/// schedule that check() (check/check_schedule.h) accepts.
[[nodiscard]] Schedule pair_neighbors(Schedule schedule);

}  // namespace chimera
