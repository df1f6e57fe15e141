#pragma once
// Many steps of a schedule in one, for asynchronous schedules, whose steps overlap. The simulator unrolls a few steps
// to find the time of one in the middle; the runtime runs a Stream, which stores a long run as its first, middle and
// last pieces.

#include <cstdint>
#include <vector>

#include "passes/lower.h"
#include "schedule/program.h"
#include "schedule/schedule.h"

namespace chimera {

/// The program of K steps of an asynchronous schedule without a flush, cut into one piece per step. A worker's piece
/// ends at the sum of the step's norms and losses, so it may contain ops of the steps before and after.
///
/// `program` has the first and last pieces of a long run. Two adjacent middle pieces are equal except for their
/// numbers, and stand for all pieces in between. A run that never repeats is stored completely.
struct Stream {
  std::int64_t steps = 0;          // K
  std::int64_t micro_batches = 0;  // N, per step
  std::int64_t updates = 0;        // Number of updates per stage and step
  Schedule schedule;               // Unrolled, of program.steps steps
  Program program;
  std::vector<std::vector<std::size_t>> ends;  // [worker][piece]: position in the program

  /// Returns the worker's instructions in step `step`, 0 <= step < K, of a run that starts at step `first` of the
  /// training.
  [[nodiscard]] std::vector<Instruction> piece(std::size_t worker, std::int64_t step, std::int64_t first = 0) const;
};

/// Lowers `steps` repetitions of `step`, an asynchronous schedule. Throws ConfigError like unroll(), and if the
/// micro-batches per update do not divide N.
[[nodiscard]] Stream lower_stream(const Schedule& step, std::int64_t steps, LoweringOptions options);

/// Returns `steps` repetitions of a step of N micro-batches: step k has micro-batches k N .. k N + N - 1.
///
/// *Synchronous:* concatenates each worker's lists. The caller must hold each step back until the weights are updated.
///
/// *Asynchronous:* no flush. On each worker, the next step's forwards up to its first backward are spread over the ops
/// after the last forward of the step before: one after each op that ends a micro-batch (B, or W), the rest at the end.
/// So a worker holds no more activations than in a single step, and 1F1B keeps its strict alternation.
///
/// If a worker forwards all N micro-batches of a step before its first backward, and ops use the newest weights (no
/// delay), it has up to D - s micro-batches in flight on stage s, or as many as the weight versions allow. So `steps`
/// steps of pipedream equal pipedream with steps N micro-batches, also for N < D.
///
/// Weight versions follow `updates` (schedule/schedule.h) over the whole run. The newest version counts the updates
/// before the forward in the worker's list.
///
/// Requires a schedule that check() accepts. Throws ConfigError if `steps` is not positive, there are more than
/// kMostOps ops, or the schedule is asynchronous with several replicas.
[[nodiscard]] Schedule unroll(const Schedule& step, std::int64_t steps);

/// Returns the number of steps in flight at once: 1 with a flush, else D / N rounded up.
[[nodiscard]] std::int64_t steps_in_flight(const Schedule& step);

/// Returns the number of steps to simulate for Timeline::period: 1 with a flush.
[[nodiscard]] std::int64_t steps_to_simulate(const Schedule& step);

}  // namespace chimera
