#pragma once
// Joins many steps of an asynchronous schedule into one schedule (unroll()) or program (lower_continuous()). Such a
// schedule updates weights while micro-batches are in flight, without a flush between steps, so its steps overlap. The
// simulator unrolls a few steps to measure the time of a step in the middle. The runtime executes a ContinuousProgram,
// the program of a whole run. It stores only the first, middle and last steps.

#include "passes/lower.h"
#include "schedule/program.h"
#include "schedule/schedule.h"

namespace chimera {

/// The program of `steps` steps of an asynchronous schedule, cut into one piece per step. A worker's piece ends at the
/// sum of the step's norms and losses, so it may contain ops of the steps before and after.
///
/// In a long run, the pieces in the middle are equal except for the numbers of their micro-batches and versions.
/// `program` then has the first pieces, two adjacent middle pieces that stand for all in between, and the last pieces.
/// A run that never repeats is stored completely.
struct ContinuousProgram {
  std::int64_t steps = 0;                      // Steps of the run
  std::int64_t micro_batches = 0;              // Micro-batches per step
  std::int64_t updates = 0;                    // Number of updates per stage and step
  Schedule schedule;                           // The unrolled schedule of the stored steps
  Program program;                             // Program of the stored steps
  std::vector<std::vector<std::size_t>> ends;  // [worker][piece]: position after its last instruction in `program`

  /// Returns the worker's instructions in step `step`, 0 to `steps` - 1. If `first` steps ran before this run, the
  /// numbers of micro-batches and versions continue from theirs.
  [[nodiscard]] std::vector<Instruction> piece(std::size_t worker, std::int64_t step, std::int64_t first = 0) const;
};

/// Returns the program of `steps` steps of `step`, the asynchronous schedule of one step. Throws ConfigError as
/// unroll() does, for example for too many ops, and if the micro-batches per update do not divide the micro-batches of
/// a step.
[[nodiscard]] ContinuousProgram lower_continuous(const Schedule& step, std::int64_t steps, LoweringOptions options);

/// Returns `steps` repetitions of a step of N micro-batches: step k has micro-batches k N .. k N + N - 1.
///
/// *Synchronous:* concatenates each worker's lists. The caller must delay each step until the weights are updated.
///
/// *Asynchronous:* the steps of a worker overlap. The last backwards of a step alternate with the first forwards of the
/// next step: one forward after each op that ends a micro-batch (a whole backward or a weight gradient); the other
/// forwards follow at the end. So a worker holds no more activations than in a single step, and 1F1B keeps its strict
/// alternation.
///
/// If a step has few micro-batches, a worker may run all its forwards before its first backward. If ops also use the
/// newest weights (AsynchronousUpdates::delay is empty), the result lets this worker run more forwards ahead: up to D -
/// s micro-batches are in flight on stage s of D, or as many as the weight versions allow. So `steps` steps of
/// pipedream equal one step of pipedream with `steps` times as many micro-batches.
///
/// Weight versions follow Schedule::updates over the whole run. The newest version of a forward is the number of
/// updates before it in the worker's list.
///
/// Requires a schedule that check() (check/check_schedule.h) accepts. Throws ConfigError if `steps` is not positive,
/// there are more than kMaxOps (10^8) ops, or the schedule is asynchronous with several replicas of the model.
[[nodiscard]] Schedule unroll(const Schedule& step, std::int64_t steps);

/// Returns the number of steps in flight at once: 1 if the schedule is synchronous, else S / N (stages / micro-batches
/// per step) rounded up.
[[nodiscard]] std::int64_t steps_in_flight(const Schedule& step);

/// Returns the number of steps that a simulation needs to measure the time of a step in the middle of a run
/// (Timeline::period); 1 if the schedule is synchronous.
[[nodiscard]] std::int64_t steps_to_simulate(const Schedule& step);

}  // namespace chimera
