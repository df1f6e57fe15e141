#pragma once

#include <cstdint>

#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/costs.h"

// A timeline as figures show it.

// Times a schedule: costs in, timeline out.

namespace chimera {

/// The same run with every forward as late as it can be without delaying another op: how the paper draws its figures.
/// One that runs together with a backward stays where it is. At equal F and B this puts each op of Chimera into its
/// slot. Makespan and order are those of `timeline`. Requires costs without links and blocking sends.
[[nodiscard]] Timeline forwards_just_in_time(const Schedule& schedule, const CostModel& costs, Timeline timeline);

/// Runs every worker's ops in their order, each as soon as its inputs have arrived.
///
/// A forward that is run again (CostModel::recompute) needs no input but its own, so that it takes place while the
/// gradient of its backward is still on its way; in the timeline both are one op, which begins as late as that allows.
///
/// Where the costs say what a pair takes, both of its ops start when the inputs of both are there, and end together.
///
/// A result that another worker needs leaves when its op ends (simulate/links.h); the sender goes on at once, unless
/// sends block. A synchronous step ends with all-reduces and, once all workers have done theirs, one update a
/// worker (simulate/synchronization.h); in an
/// asynchronous schedule a worker sums and updates right after the op that completes an update, before its next op.
/// Throws ScheduleError where ops wait for each other in a cycle, and ConfigError as CostTable does. Requires a
/// schedule that check() accepts; of one that lacks ops, each is timed as if the missing ones were not needed.
[[nodiscard]] Timeline simulate(const Schedule& schedule, const CostModel& costs);

/// The same for `steps` steps in a row, unrolled into one schedule: micro-batches k n to (k+1) n - 1 are those of step
/// k, n = N / steps. Where it is synchronous, a worker begins a step after its own update of the one before; an
/// asynchronous one has no flush. Throws ConfigError where `steps` does not divide N, and ScheduleError where a worker
/// of a synchronous schedule mixes the ops of two steps.
[[nodiscard]] Timeline simulate_steps(const Schedule& unrolled, std::int64_t steps, const CostModel& costs);

}  // namespace chimera
