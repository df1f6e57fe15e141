#pragma once

#include <cstdint>

#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/contention.h"
#include "simulate/costs.h"

// Times a schedule whose workers are processes on a few cores, or whose sums and messages get in each other's way: what
// runs at once shares what there is.

namespace chimera {

/// Cores that the workers of one group share on each node, for any length of time evenly.
struct SharedCores {
  /// The cores / t of a node whose workers compute with t threads. All groups do the same at the same time, so that
  /// one timeline stands for all: what a worker computes counts as often as its node has copies of it. Without `nodes`,
  /// where W groups share one machine: its cores / (W t). Infinite: a core (a device) for everything.
  double cores = 1;
  /// The part of an all-reduce's time that each of its workers computes (adds up, copies to and from sockets); during
  /// the rest it waits for the network.
  double all_reduce_share = 1;
  Contention contention = {};
  NodesOfGroup nodes = {};
};

/// What simulate() says, except that things take longer where cores are scarce: while ops and updates run on k workers
/// of a node, each advances at rate min(1, cores / k) (processor sharing). An all-reduce counts as all_reduce_share
/// more on each of its workers; of a rate r for the part that computes it makes 1 / (1 - share + share / r). Messages
/// and waiting need no core. The costs are those of ops that have a core to themselves. Beside that ops, messages and
/// sums on one worker slow each other down as `contention` says.
///
/// With as many cores as workers (twice as many, where all-reduces compute beside ops) this is simulate(), to the last
/// bit; with one core and nothing to wait for it is the sum of all work.
///
/// The lower bound is simulate()'s, or the work of all ops over the cores of all nodes where that is more.
/// Throws as simulate() does, and ConfigError unless cores > 0, all_reduce_share is in [0, 1] and contention is as its
/// fields say.
[[nodiscard]] Timeline simulate_on_cores(const Schedule& schedule, const CostModel& costs, const SharedCores& cores);

/// The same for `steps` steps in a row, as simulate_steps() has them.
[[nodiscard]] Timeline simulate_steps_on_cores(const Schedule& unrolled, std::int64_t steps, const CostModel& costs,
                                               const SharedCores& cores);

}  // namespace chimera
