#pragma once
// Times of a schedule. simulate() (simulate/simulate.h) computes a Timeline. explain() (simulate/explain.h) derives an
// Explanation from it: why workers wait, messages in transit, and memory over time. Pictures and tables show both.
// measured_step() (train/observe/measured_step.h) returns the same types for a training step that was traced.

#include "core/choices.h"
#include "schedule/dependencies.h"
#include "schedule/schedule.h"

namespace chimera {

/// Start and end of an op. All times in this header count from the start of the first step, in the unit of the costs
/// (simulate/costs.h); measured times are in seconds.
struct TimedOp {
  double start = 0;
  double end = 0;
};

/// Why a worker waits.
enum class IdleCause : std::uint8_t {
  WarmUp,      ///< Nothing has reached the worker yet
  Dependency,  ///< The op that makes its input has not finished
  Latency,     ///< Its input is in transit
  Sync,        ///< All-reduces and the optimizer step
  Imbalance,   ///< Its own ops are done, others are not
};
/// Names in pictures and JSON.
template <>
inline constexpr auto kNames<IdleCause> = in_order<IdleCause>("warm-up", "dependency", "latency", "sync", "imbalance");
inline constexpr int kIdleCauses = kNames<IdleCause>.size();

/// A time in which a worker waits for one cause.
struct Bubble {
  double start = 0;
  double end = 0;
  IdleCause cause = IdleCause::Dependency;
  std::optional<Place> waits_for = std::nullopt;  // The op whose result is missing; nothing: the worker waits for no op
};

/// A tensor that is sent from one worker to another. It leaves the sender at `sent`.
struct Message {
  Place from;  // The op that makes the tensor
  Place to;    // The op that needs it
  double sent = 0;
  double arrived = 0;
};

/// The all-reduce of a parameter group (a stage, or the tied matrix) on one of its workers. It runs beside the ops.
/// `launched_by` is empty if the last worker launched it before all of its ops.
struct TimedAllReduce {
  ParameterGroupId group;
  double start = 0;
  double end = 0;
  std::optional<Place> launched_by = std::nullopt;  // The op after which the last of its workers launched it
  std::size_t after = 0;                            // Number of this worker's ops before it launched the all-reduce
};

/// The optimizer step of a worker, during which it runs no op. In an asynchronous schedule: the update of one stage,
/// together with its all-reduce.
struct TimedUpdate {
  std::size_t after = 0;  // Number of the worker's ops before it
  double start = 0;
  double end = 0;
};

/// The memory that a worker uses from `time` until the next point, in the unit of Explanation::memory.
struct MemoryPoint {
  double time = 0;
  double amount = 0;
};

/// Times of one worker.
struct WorkerTimeline {
  bool lost = false;         // Holds no stage (schedule/schedule.h), so ratios leave it out
  std::vector<TimedOp> ops;  // In the order of the worker's list
  double busy = 0;           // Time in ops
  double idle = 0;           // Makespan - busy; 0 if lost
  // Maximum number of (replica, stage, micro-batch, slice) in flight: from the start of the forward to the end of the
  // backward (B, or W if it is split)
  std::int64_t peak_in_flight = 0;
  double inner_idle = 0;  // Part of `idle` between its first and last op
  // peak_in_flight in stage units. A unit is one full micro-batch on 1/D of the model's layers, for D workers
  double peak_stage_units = 0;
  std::int64_t peak_weight_versions = 1;         // Maximum number of versions of a stage kept at once
  std::vector<TimedAllReduce> all_reduces = {};  // In order of start; empty if they cost nothing
  std::vector<TimedUpdate> updates = {};         // In order; one per step in a synchronous schedule
};

/// Returns peak_in_flight in micro-batches: 1.375 if 11 slices are in flight, and a micro-batch has 8 slices.
[[nodiscard]] inline double micro_batches_in_flight(const Schedule& schedule, const WorkerTimeline& worker) {
  return static_cast<double>(worker.peak_in_flight) / static_cast<double>(schedule.slices);
}

/// Returns whether the op at `position` and the next one are a pair, and overlap in this timeline.
[[nodiscard]] inline bool runs_with_next(const std::vector<Op>& ops, const WorkerTimeline& timeline,
                                         std::size_t position) {
  return ops[position].paired && position + 1 < ops.size() &&
         timeline.ops[position + 1].start < timeline.ops[position].end;
}

/// Times of all workers, and totals.
struct Timeline {
  std::vector<WorkerTimeline> workers;
  double makespan = 0;                 // End of the last op, all-reduce or update
  double bubble_ratio = 0;             // Idle time of all workers / (their number * makespan), without lost workers
  double lower_bound = 0;              // No order of these ops on these workers can be faster
  double ops_end = 0;                  // End of the last op
  double inner_bubble = 0;             // Maximum of WorkerTimeline::inner_idle
  double makespan_bubble = 0;          // Makespan - busy time of the busiest worker
  std::vector<double> step_ends = {};  // [step]: its end on all workers
  double period = 0;                   // Time from step to step in the middle of the run; of one step, the makespan
};

/// Details of a timeline, for pictures and tables.
struct Explanation {
  std::vector<std::vector<Bubble>> bubbles;  // [worker], in order of time; sum is the worker's idle time
  std::vector<Message> messages;
  std::vector<std::vector<TimedAllReduce>> all_reduces;  // [worker], in order of start
  std::vector<std::vector<MemoryPoint>> memory;          // [worker], in bytes, or stage units if bytes are unknown
  std::vector<Place> critical_path;  // Ops that determine the makespan, first to last; empty if measured
};

/// Returns [cause]: the total length of these workers' bubbles.
[[nodiscard]] inline std::array<double, kIdleCauses> idle_by_cause(std::span<const std::vector<Bubble>> workers) {
  std::array<double, kIdleCauses> idle{};
  for (const auto& bubbles : workers)
    for (const Bubble& bubble : bubbles) idle[static_cast<std::size_t>(bubble.cause)] += bubble.end - bubble.start;
  return idle;
}

}  // namespace chimera
