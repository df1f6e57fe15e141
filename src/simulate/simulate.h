#pragma once

// The simulator: when does each op of a schedule start and end? It is the core of this room.
//
//     Schedule + CostModel --> simulate() --> Timeline --> explain(): bubbles, messages, memory, critical path
//
// A PipelineState (pipeline_state.h) holds the rules by which a pipeline advances. One of two clocks drives it: workers
// run ahead on cores of their own (simulate.cc), or event by event if they share something (shared_cores.h). The
// planner predicts steps with it, the search checks its results, and commands and pages draw its timelines.

#include <cstdint>

#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/contention.h"
#include "simulate/costs.h"

namespace chimera {

/// Moves every forward as late as possible without delaying another op, as in the paper's figures; makespan and order
/// stay. With equal F and B, ops of Chimera are in the figure's slots. Forwards that run together with a backward stay.
/// Requires costs without links and blocking sends.
[[nodiscard]] Timeline forwards_just_in_time(const Schedule& schedule, const CostModel& costs, Timeline timeline);

struct SimulationOptions {
  /// Consecutive steps, unrolled into the schedule: step k has micro-batches k n to (k+1) n - 1, n = N / steps. In a
  /// synchronous schedule, a worker starts a step after its previous update; an asynchronous schedule has no flush.
  std::int64_t steps = 1;
  SharedCores cores = {};  // default: each worker has cores of its own
};

/// Runs every worker's ops in order, each as soon as its inputs have arrived.
///
/// Recomputation (CostModel::recompute) can run before the gradient arrives. In the timeline it is part of the
/// backward, which starts as late as possible. Ops of a pair that run together start when the inputs of both have
/// arrived, and end at the same time.
///
/// A backward of offloaded activations, with its recomputation, starts once they are back (simulate/copy_engines.h).
///
/// A result for another worker is sent when its op ends (simulate/links.h); the sender continues unless sends block. A
/// synchronous step ends with all-reduces and, after all of them, one update per worker (simulate/sum_lanes.h). In an
/// asynchronous schedule, a worker all-reduces and updates right after the op that completes an update.
///
/// Cores that are shared, and contention, slow activities down (simulate/shared_cores.h). With enough cores for all,
/// the times are bit for bit those on own cores.
///
/// The timeline's lower bound holds for every order of the ops, and for every sharing of the cores: their work takes at
/// least its sum over all cores, less what an op saves while all other cores idle.
///
/// Throws ScheduleError if ops wait for each other in a cycle, or a worker of a synchronous schedule mixes the ops of
/// two steps. Throws ConfigError as CostTable does, if `steps` does not divide N, and unless `cores` has cores > 0,
/// all_reduce_share in [0, 1], finite slowdowns of 0 or more, and an overlap of sums and an idle gain in [0, 1).
/// Requires a schedule that check() accepts; a missing op is ignored as an input.
[[nodiscard]] Timeline simulate(const Schedule& schedule, const CostModel& costs,
                                const SimulationOptions& options = {});

}  // namespace chimera
