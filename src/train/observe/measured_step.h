#pragma once

// Converts traced training steps to the Timeline of simulate() (schedule/timeline.h), so that the same code explains
// and draws measured and simulated steps. gather_steps() (observation.h) collects a RecordedStep from the tracers of
// all ranks. measured_step() makes a MeasuredStep of it for one data-parallel group. measured_costs() summarizes such
// steps in a CostModel, which --op-times writes, and with which --timeline and --report simulate the schedule.

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/tracer.h"
#include "schedule/timeline.h"
#include "simulate/costs.h"
#include "train/setup/job.h"

namespace chimera {

/// Measurements of a run over all workers.
struct RunSummary {
  std::int64_t steps = 0;              // Measured
  bool is_whole = true;                // False after an early stop request
  OpTimes op_times{0};                 // Without the first step, unless there are no others
  double step_seconds = 0;             // Median
  double optimizer_seconds = 0;        // Mean on the slowest worker
  WaitTimes waits;                     // In a step, mean over ranks
  double compute_seconds = 0;          // In ops of a step, by wall clock, mean over ranks
  std::optional<double> others_share;  // Of the cores, used by other processes; empty: not known
  double peak_memory_bytes = 0;        // As in StepMetrics
  double used_memory_bytes = 0;        // As in StepMetrics; 0 on the CPU
  std::vector<OpTimes> rank_op_times;  // [rank], if the job reports stragglers
};

/// A traced step of all ranks, in seconds of rank 0's clock.
struct RecordedStep {
  std::int64_t step = 0;                          // Counted from 0
  std::vector<std::vector<double>> boundaries;    // [rank][instruction + 1], as in StepTrace
  std::vector<std::vector<double>> summed_until;  // [rank][parameter group]: end of the all-reduce; 0: unknown
};

/// A message between two workers of a group, in seconds from the step's start.
struct MeasuredTransfer {
  Op made;               // The op whose result is sent
  std::size_t from = 0;  // Worker index
  std::size_t to = 0;
  double sent = 0;     // Start of the instruction that starts the send
  double awaited = 0;  // Start of the receiver's wait
  double arrived = 0;  // End of the receiver's wait
};

struct MeasuredRecomputation {
  Op op;  // The recomputed forward
  TimedOp time;
};

/// A step of one data-parallel group, in seconds from the earliest start of a rank of any group.
struct MeasuredStep {
  std::int64_t step = 0;  // Counted from 0
  double start = 0;       // In seconds of rank 0's clock
  /// An all-reduce starts when the last member launches it. If RecordedStep::summed_until is 0 for all members, it
  /// starts no earlier than the first member's wait. It ends on each worker separately. The lower bound is 0.
  Timeline timeline;
  /// Result of explain_measured(); recomputations are not idle time.
  Explanation explanation;
  std::vector<MeasuredTransfer> transfers;                         // Order of explanation.messages
  std::vector<std::vector<MeasuredRecomputation>> recomputations;  // [worker]
  std::vector<std::vector<TimedAllReduce>> launched;               // [worker], from its own launch
};

/// Returns the step of the data-parallel group `group`.
[[nodiscard]] MeasuredStep measured_step(const Job& job, GroupId group, const RecordedStep& recorded);

/// Returns mean seconds of ops and recomputations on the given clock, for full micro-batches.
[[nodiscard]] CostModel measured_op_costs(const Job& job, const OpTimes& times, double Duration::*clock);

/// Adds costs from steps [step][group] (at least one) to measured_op_costs() by wall clock. The latency is the median
/// over messages with a waiting receiver, from the end of the producing op. All-reduce times are means per stage.
/// Optimizer times are divided among a worker's stages by parameters.
[[nodiscard]] CostModel measured_costs(const Job& job, const OpTimes& times,
                                       const std::vector<std::vector<MeasuredStep>>& steps);

}  // namespace chimera
