#pragma once

#include <cstdint>
#include <vector>

#include "runtime/tracer.h"
#include "schedule/timeline.h"
#include "simulate/costs.h"
#include "train/loop/trainer.h"
#include "train/setup/job.h"

// One step as it ran, in the form that simulate() predicts it in.

// Measured times as costs: what `simulate` is fed to predict the step, and what --op-times writes.

namespace chimera {

/// What the ranks' tracers kept of one step, in seconds of rank 0's clock.
struct RecordedStep {
  std::int64_t step = 0;                          // from 0
  std::vector<std::vector<double>> boundaries;    // [rank][instruction + 1]
  std::vector<std::vector<double>> summed_until;  // [rank][stage]; 0: not known
};

/// A message between two workers, beyond what Message says.
struct MeasuredTransfer {
  Op made;
  std::size_t from = 0;  // workers
  std::size_t to = 0;
  double sent = 0;     // handed to the transport
  double awaited = 0;  // the receiver began to wait for it
  double arrived = 0;  // that wait ended
};

/// A forward that ran again.
struct MeasuredRecomputation {
  Op op;  // the forward
  TimedOp time;
};

/// One group's step, in seconds from its first instruction on.
struct MeasuredStep {
  std::int64_t step = 0;  // from 0
  double start = 0;       // of rank 0's clock
  /// An all-reduce goes from the last member's launch (where a sum is formed in waits alone: or the first member's
  /// wait) to its end on the worker. No lower bound is known: it is 0.
  Timeline timeline;
  /// What explain_measured() says of it; recomputations are no idle time.
  Explanation explanation;
  std::vector<MeasuredTransfer> transfers;                         // in the order of their arrows in the explanation
  std::vector<std::vector<MeasuredRecomputation>> recomputations;  // [worker]
  std::vector<std::vector<TimedAllReduce>> launched;               // [worker]: its all-reduces from its own launch on
};

/// What a group did in a recorded step of the job.
[[nodiscard]] MeasuredStep measured_step(const Job& job, GroupId group, const RecordedStep& recorded);

/// Means of the run's ops and recomputations by one of the clocks, in seconds, for full micro-batches.
[[nodiscard]] CostModel measured_op_costs(const Job& job, const OpTimes& times, double Duration::*clock);

/// The same by the wall clock, and from the recorded steps (at least one, of all groups: [step][group]) what else a
/// step takes: the median latency of messages whose receiver was waiting already, from the end of the op that makes
/// them; the mean of each stage's all-reduces, where it has several copies; and of each stage's share of its workers'
/// optimizer step, by its parameters.
[[nodiscard]] CostModel measured_costs(const Job& job, const OpTimes& times,
                                       const std::vector<std::vector<MeasuredStep>>& steps);

}  // namespace chimera
