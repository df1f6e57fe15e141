#pragma once
// Pairs for schedules that have none of their own (`--pairs neighbors`): a forward and the backward after it can run
// together and use hardware that one of them leaves idle.

#include "schedule/schedule.h"

namespace chimera {

/// Returns the same orders with every forward and the B or I of another micro-batch right after it as a pair, except
/// pairs that would deadlock together. All workers run until they block. Whenever all are blocked, the first worker
/// whose pair waits only for an input of the second op runs it in order. Leaves an asynchronous schedule unchanged.
/// Requires a schedule that check() accepts.
[[nodiscard]] Schedule pair_neighbors(Schedule schedule);

}  // namespace chimera
