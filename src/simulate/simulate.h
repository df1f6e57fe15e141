#pragma once

// The simulator computes the start and the end of each op of a schedule.
//
//     Schedule + CostModel --> simulate() --> Timeline --> explain(): bubbles, messages, memory, critical path
//
// PipelineState (pipeline_state.h) has the rules by which a pipeline advances. One of two event loops drives it: a
// simple one in simulate.cc if each worker has cores of its own, and shared_cores.cc if workers slow each other down.
// The planner predicts steps with simulate(), the search checks its results with it, and commands and pages draw its
// timelines.

#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/contention.h"
#include "simulate/costs.h"

namespace chimera {

/// Returns the timeline with every forward as late as possible without delaying another op, as in the figures of the
/// Chimera paper. Makespan and order do not change. If forwards and backwards take equal times, the ops of Chimera are
/// then in the slots of these figures. Forwards that run together with a backward do not move. Requires costs without
/// links and blocking sends.
[[nodiscard]] Timeline forwards_just_in_time(const Schedule& schedule, const CostModel& costs, Timeline timeline);

/// What simulate() needs besides schedule and costs.
struct SimulationOptions {
  /// Number of consecutive steps in the schedule (unroll() in passes/unroll.h makes such schedules). All steps have
  /// equally many micro-batches, numbered on from step to step. In a synchronous schedule, a worker starts a step after
  /// its update of the step before; an asynchronous schedule has no flush.
  std::int64_t steps = 1;
  SharedCores cores = {};  // cores that workers share, and contention; default: each worker has cores of its own
};

/// Simulates a schedule: every worker runs its ops in order, each as soon as its inputs have arrived.
///
/// Recomputation (CostModel::recompute) can run before the gradient arrives. In the timeline it is part of the
/// backward, which starts as late as possible. If a forward and a backward run together (Pairs in schedule/schedule.h),
/// they start when the inputs of both have arrived, and end at the same time.
///
/// If activations are offloaded, their backward and its recomputation start when they are back on the device
/// (simulate/copy_engines.h).
///
/// A result for another worker is sent when its op ends (simulate/links.h); the sender continues unless sends block. A
/// synchronous step ends with all-reduces and, after all of them, one update per worker (simulate/all_reduce_queues.h).
/// In an asynchronous schedule, a worker all-reduces and updates right after the op that completes an update.
///
/// Shared cores and contention slow activities down (run_on_shared_cores()). If there are cores for all workers, the
/// times equal those on own cores bit by bit.
///
/// Timeline::lower_bound holds for every order of the ops. On shared cores, it is at least the total time of all ops
/// divided by the number of cores, less the time that ops save while other cores idle.
///
/// Throws ScheduleError if ops wait for each other in a cycle, or if a worker of a synchronous schedule mixes the ops
/// of two steps. Throws ConfigError if a cost is invalid (CostTable), and if `steps` does not divide the number of
/// micro-batches. Also throws it unless `cores` has cores > 0, all_reduce_share in [0, 1], finite slowdowns of 0 or
/// more, and sums_overlap and idle_gain in [0, 1). Requires a schedule that check() accepts; if an op that makes an
/// input is missing, the input is ignored.
[[nodiscard]] Timeline simulate(const Schedule& schedule, const CostModel& costs,
                                const SimulationOptions& options = {});

}  // namespace chimera
