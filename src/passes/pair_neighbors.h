#pragma once
// Which ops of any schedule can be pairs.

#include "schedule/schedule.h"

namespace chimera {

/// The same orders, with every forward and the B or I of another micro-batch that stands right behind it on its worker
/// as a pair, but for those that keep a schedule from running its pairs together: all workers run as far as they can,
/// and where none goes on, the first one that waits for the second op of a pair alone runs its two ops in order. So the
/// last workers of 1F1B have fewer pairs, whose backward waits for what their forward makes. An asynchronous schedule
/// stays without pairs. Requires a schedule that check() accepts.
[[nodiscard]] Schedule pair_neighbours(Schedule schedule);

}  // namespace chimera
