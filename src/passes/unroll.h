#pragma once
// Joins many steps of an asynchronous schedule, whose steps overlap, into one schedule (unroll()) or program
// (lower_continuous()). The simulator unrolls a few steps to measure the time of a step in the middle. The runtime
// executes a ContinuousProgram, the program of a whole run. It stores only the first, middle and last steps.

#include <cstdint>
#include <vector>

#include "passes/lower.h"
#include "schedule/program.h"
#include "schedule/schedule.h"

namespace chimera {

/// The program of K steps of an asynchronous schedule without a flush, cut into one piece per step. A worker's piece
/// ends at the sum of the step's norms and losses, so it may contain ops of the steps before and after.
///
/// In a long run, the pieces in the middle are equal except for the numbers of their micro-batches and versions.
/// `program` then has the first pieces, two adjacent middle pieces that stand for all in between, and the last pieces.
/// A run that never repeats is stored completely.
struct ContinuousProgram {
  std::int64_t steps = 0;                      // K
  std::int64_t micro_batches = 0;              // N, per step
  std::int64_t updates = 0;                    // Number of updates per stage and step
  Schedule schedule;                           // The unrolled schedule of the stored steps
  Program program;                             // Program of the stored steps, Program::steps
  std::vector<std::vector<std::size_t>> ends;  // [worker][piece]: position in the program

  /// Returns the worker's instructions in step `step`, 0 <= step < K. If the run continues a training at step `first`,
  /// micro-batches and versions are numbered from there.
  [[nodiscard]] std::vector<Instruction> piece(std::size_t worker, std::int64_t step, std::int64_t first = 0) const;
};

/// Returns the program of `steps` steps of `step`, the asynchronous schedule of one step. Throws ConfigError if
/// unroll() does, and if the micro-batches per update do not divide N.
[[nodiscard]] ContinuousProgram lower_continuous(const Schedule& step, std::int64_t steps, LoweringOptions options);

/// Returns `steps` repetitions of a step of N micro-batches: step k has micro-batches k N .. k N + N - 1.
///
/// *Synchronous:* concatenates each worker's lists. The caller must delay each step until the weights are updated.
///
/// *Asynchronous:* the steps of a worker overlap. The last backwards of a step alternate with the first forwards of the
/// next step: one forward after each op that ends a micro-batch (B, or W); the other forwards follow at the end. So a
/// worker holds no more activations than in a single step, and 1F1B keeps its strict alternation.
///
/// A worker may run all N forwards of a step before its first backward, if N is small. If ops also use the newest
/// weights (no delay), the result lets this worker run more forwards ahead: up to D - s micro-batches are in flight on
/// stage s, or as many as the weight versions allow. So `steps` steps of the schedule pipedream equal pipedream with
/// `steps` N micro-batches, also for N < D.
///
/// Weight versions follow Schedule::updates over the whole run. The newest version of a forward is the number of
/// updates before it in the worker's list.
///
/// Requires a schedule that check() accepts. Throws ConfigError if `steps` is not positive, there are more than
/// kMaxOps ops, or the schedule is asynchronous with several replicas.
[[nodiscard]] Schedule unroll(const Schedule& step, std::int64_t steps);

/// Returns the number of steps in flight at once: 1 with a flush, else D / N rounded up.
[[nodiscard]] std::int64_t steps_in_flight(const Schedule& step);

/// Returns the number of steps that a simulation needs to measure the time of a step in the middle of a run
/// (Timeline::period); 1 with a flush.
[[nodiscard]] std::int64_t steps_to_simulate(const Schedule& step);

}  // namespace chimera
