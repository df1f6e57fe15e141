#pragma once

// Converts traced training steps to the Timeline of simulate() (schedule/timeline.h), so that the same code explains
// and draws measured and simulated steps. gather_steps() (observation.h) collects a RecordedStep from the tracers of
// all ranks. measured_step() makes a MeasuredStep of it for one data-parallel group. measured_costs() summarizes such
// steps in a CostModel, which --op-times writes, and with which --timeline and --report simulate the schedule.

#include "runtime/tracer.h"
#include "schedule/timeline.h"
#include "simulate/costs.h"
#include "train/setup/job.h"

namespace chimera {

/// Measurements of a rank, of the same steps as RunSummary, in seconds.
struct RankTimes {
  OpTimes op_times{0};           // Total of all steps
  double optimizer_seconds = 0;  // Mean per step
  WaitTimes waits;               // Mean per step
};

/// Measurements of a run over all ranks. Times exclude the first step, unless there are no others.
struct RunSummary {
  std::int64_t steps = 0;              // Number of measured steps
  bool is_whole = true;                // False if a stop request ended the run early
  OpTimes op_times{0};                 // Total of all ranks and steps
  double step_seconds = 0;             // Median
  double optimizer_seconds = 0;        // Mean per step, on the slowest worker
  WaitTimes waits;                     // Per step, mean over ranks
  double compute_seconds = 0;          // Wall-clock seconds of ops per step, mean over ranks
  std::optional<double> others_share;  // Fraction of the cores' time that other processes used; empty: unknown
  std::string busiest_other = {};      // Name and share of the busiest of these processes; empty: none
  double peak_memory_bytes = 0;        // Of a process, or of its tensors on a GPU; the largest of all ranks
  double used_memory_bytes = 0;        // Of a GPU, by all processes; the largest of all ranks; 0 on the CPU
  std::vector<RankTimes> ranks;        // [rank]
};

/// A traced step of all ranks. Times are in seconds of rank 0's clock, to which the clocks of all ranks are converted.
struct RecordedStep {
  std::int64_t step = 0;                        // Counted from 0
  std::vector<std::vector<double>> boundaries;  // [rank][i]: start of instruction i, and end of i - 1 (StepTrace)
  // [rank][parameter group (a stage, or the tied matrix)]: end of the all-reduce; 0: unknown
  std::vector<std::vector<double>> all_reduce_ends;
};

/// A message between two workers of a data-parallel group. Times are in seconds from the start of the step.
struct MeasuredTransfer {
  Op made;               // The op whose result is sent
  std::size_t from = 0;  // Sending worker
  std::size_t to = 0;    // Receiving worker
  double sent = 0;       // Start of the instruction StartSend
  double awaited = 0;    // Start of the receiver's wait
  double arrived = 0;    // End of the receiver's wait
};

/// A forward that runs again before its backward.
struct MeasuredRecomputation {
  Op op;  // The recomputed forward
  TimedOp time;
};

/// A step of one data-parallel group. If T ranks share the layers of each worker (tensor parallelism), it is the step
/// of one of the T *lanes*: the ranks with the same place among those T (engine/tensor_ranks.h). Times are in seconds
/// from the start of the step: the earliest start on any rank of any group.
struct MeasuredStep {
  std::int64_t step = 0;  // Counted from 0
  GroupId group{0};
  std::int64_t lane = 0;  // From 0; 0 without tensor parallelism
  double start = 0;       // Start of the step in seconds of rank 0's clock
  /// In this timeline, an all-reduce starts when the last of its ranks launches it; if RecordedStep::all_reduce_ends is
  /// 0 for all of them, no earlier than the first wait for it. Its end is measured on each worker separately.
  /// Timeline::lower_bound is 0.
  Timeline timeline;
  /// Idle time by cause, and the messages, by explain_measured() (simulate/explain.h). Recomputations are not idle
  /// time.
  Explanation explanation;
  std::vector<MeasuredTransfer> transfers;                         // In the order of explanation.messages
  std::vector<std::vector<MeasuredRecomputation>> recomputations;  // [worker]
  std::vector<std::vector<TimedAllReduce>> launched;               // [worker]: from the worker's own launch to the end
};

/// Returns the recorded step for the data-parallel group `group` and the lane `lane`.
[[nodiscard]] MeasuredStep measured_step(const JobShape& job, GroupId group, const RecordedStep& recorded,
                                         std::int64_t lane = 0);

/// Returns CostModel::slices of the job: attention's share of the FLOPs, and the bounds of slices in fractions of a
/// sequence. Empty without slices.
[[nodiscard]] SliceCosts slice_costs(const JobShape& job);

/// Returns costs with the mean seconds of ops and recomputations for full micro-batches. `clock` is
/// &Duration::wall_seconds or &Duration::cpu_seconds.
[[nodiscard]] CostModel measured_op_costs(const JobShape& job, const OpTimes& times, double Duration::*clock);

/// Returns measured_op_costs() by wall clock, with further costs from `steps`, the result of measured_steps()
/// (observation.h), with at least one step. The latency of a message is the time from the end of the op that made it to
/// its arrival, as the median over messages whose receiver was waiting. All-reduce times are means per stage. The
/// optimizer time of a worker is divided among its stages in proportion to their parameters.
[[nodiscard]] CostModel measured_costs(const JobShape& job, const OpTimes& times,
                                       const std::vector<std::vector<MeasuredStep>>& steps);

}  // namespace chimera
