#pragma once
// Pairs for schedules that have none of their own (`--pairs neighbors`): a forward and the backward after it can run
// together and use hardware that one of them leaves idle.

#include "schedule/schedule.h"

namespace chimera {

/// Returns the schedule with the same orders of ops, and with new pairs: every forward, and the B or I of another
/// micro-batch directly after it. A pair starts only when both ops have their inputs, so some pairs would deadlock. To
/// find them, runs the ops of all workers until every worker is blocked. Then removes one pair: that of the lowest
/// worker whose next op is the first of a pair and has its inputs. Repeats both until all ops have run.
///
/// Leaves a schedule unchanged if it is asynchronous or has slices. Requires a schedule that check() accepts.
[[nodiscard]] Schedule pair_neighbors(Schedule schedule);

}  // namespace chimera
