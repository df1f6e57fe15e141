#pragma once

#include <cstdint>
#include <vector>

#include "passes/lower.h"
#include "schedule/program.h"
#include "schedule/schedule.h"

// The program of a run of steps that an asynchronous schedule does without a flush, cut into one piece a step.

// Several steps of training in a row, as one schedule.

namespace chimera {

/// A worker's piece of step k ends where it sums that step's norms and losses: all workers reach that at about one
/// time, so a piece of step k may have ops of step k - 1 and k + 1 too. The last piece goes to the end of the run,
/// where nothing is under way.
///
/// The middle of a long run repeats itself. `program` has the run's first and last pieces and is as long as it takes
/// for two neighbours in its middle to be equal but for their numbers; in between, that piece stands for all the
/// others. A run that never repeats itself is there as a whole.
struct Stream {
  std::int64_t steps = 0;                      // K, of the run
  std::int64_t micro_batches = 0;              // N, of a step
  std::int64_t updates = 0;                    // of a stage in a step
  Schedule schedule;                           // unrolled, of min(K, so many) steps
  Program program;                             // of `schedule`
  std::vector<std::vector<std::size_t>> ends;  // [worker][piece]: positions in the program

  /// What worker w does in step `step` of the run, 0 <= step < K, in the micro-batches and weight versions of a run
  /// whose first step is step `first` of the training.
  [[nodiscard]] std::vector<Instruction> piece(std::size_t worker, std::int64_t step, std::int64_t first = 0) const;
};

/// Lowers `steps` repetitions of `step`, an asynchronous schedule of one replica whose updates take a number of
/// micro-batches that divides N. Throws ConfigError as unroll() does, and where the number does not divide N.
[[nodiscard]] Stream lower_stream(const Schedule& step, std::int64_t steps, LoweringOptions options);

/// `steps` repetitions of a step of N micro-batches: step k has micro-batches k N .. k N + N - 1.
///
/// *Synchronous:* every worker's lists one after the other. Nothing in the value holds a step back until the one before
/// has updated the weights; whoever runs or times it must (the flush).
///
/// *Asynchronous:* no flush. On each worker the next step's first forwards, up to its first backward, stand among the
/// ops behind the last forward of the step before: one after each op that ends a micro-batch there (B, or W), those
/// that are left at the end. So a worker holds no more activations than in the single step, and 1F1B's strict
/// alternation goes on.
///
/// A worker that forwards all N micro-batches of a step before its first backward is held back by the step, not by the
/// schedule. Where an op uses the newest weights (no delay), it goes on with those of the next steps until as many are
/// at work as there are stages from its own to the last, D - s, or as the number of weight versions allows. So `steps`
/// steps of pipedream are pipedream with steps N micro-batches, N below D too: a run without bubbles after its start.
///
/// Weight versions are those of the stream, by the rule that `updates` states (schedule.h): a stage's newest, counting
/// the updates that stand before the forward in the worker's list, or a fixed delay. So pipedream's micro-batch m uses
/// version max(0, m - (D-1-s)) on stage s, and batch t of pipedream-2bw version max(0, t-1) on every stage.
///
/// Requires a schedule that check() accepts. Throws ConfigError if `steps` is not positive, the ops are more than
/// kMostOps, or the schedule is asynchronous with several replicas (when a stage has an update is then no matter of one
/// worker's list).
[[nodiscard]] Schedule unroll(const Schedule& step, std::int64_t steps);

/// Steps whose micro-batches may be at work at once: 1 with a flush, else D / N, rounded up.
[[nodiscard]] std::int64_t steps_at_work(const Schedule& step);

/// Steps to time in a row for the time of one in the midst of a run (Timeline::period): 1 with a flush.
[[nodiscard]] std::int64_t steps_to_time(const Schedule& step);

}  // namespace chimera
