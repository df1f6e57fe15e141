#pragma once

#include <cstdint>

#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/contention.h"
#include "simulate/costs.h"

namespace chimera {

/// Cores that the workers of a group share evenly on each node.
struct SharedCores {
  /// Cores of a node divided by the threads t per worker. All groups run in lockstep, so one timeline represents all; a
  /// worker's computation counts once per copy on its node. Without `nodes`, for W groups on one machine: its cores /
  /// (W t). Infinity: no limit.
  double cores = 1;
  /// Fraction of an all-reduce's time while its workers compute (add, copy to and from sockets); the rest waits for
  /// the network.
  double all_reduce_share = 1;
  /// Relative slowdown of computation while it needs more cores than a node has: caches are refilled at each switch.
  double switching = 0;
  Contention contention = {};
  NodePlacement nodes = {};
};

/// Simulates like simulate(), but with limited cores. While k workers of a node run ops and updates, each advances at
/// rate 1 if k <= cores, else cores / k / (1 + switching) (processor sharing). An all-reduce uses all_reduce_share of a
/// core on each of its workers; if its computation runs at rate r, it advances at rate 1 / (1 - share + share / r).
/// Messages and waiting use no core. Costs are durations on an own core. Overlapping activities also slow each other
/// down per `contention`.
///
/// Without contention, and with as many cores as workers (twice as many if all-reduces overlap ops), this equals
/// simulate() bit for bit.
///
/// The lower bound is the larger of simulate()'s and the work of all ops divided by all cores, less what an op saves
/// while all other cores idle. Throws as simulate() does, and ConfigError unless cores > 0, all_reduce_share is in
/// [0, 1], switching is at least 0 and contention is valid.
[[nodiscard]] Timeline simulate_on_cores(const Schedule& schedule, const CostModel& costs, const SharedCores& cores);

/// Simulates consecutive steps, as simulate_steps() does.
[[nodiscard]] Timeline simulate_steps_on_cores(const Schedule& unrolled, std::int64_t steps, const CostModel& costs,
                                               const SharedCores& cores);

}  // namespace chimera
