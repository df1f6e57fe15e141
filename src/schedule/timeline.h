#pragma once
// When everything of a schedule runs: what simulate() finds, and what the pictures show.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "schedule/dependencies.h"
#include "schedule/schedule.h"

namespace chimera {

/// A span of time, in the unit of the costs that produced it.
struct TimedOp {
  double start = 0;
  double end = 0;
};

/// Why a worker waits.
enum class IdleCause : std::uint8_t {
  WarmUp,      ///< nothing has reached it yet
  Dependency,  ///< the op that makes its input is still to run, or running
  Latency,     ///< its input is made and on its way
  Sync,        ///< all-reduces and the optimizer step
  Imbalance,   ///< its own ops are done, others' are not
};
inline constexpr int kIdleCauses = 5;
/// `warm-up`, `dependency`, `latency`, `sync` or `imbalance`.
[[nodiscard]] const char* to_text(IdleCause cause);

/// A time in which a worker computes nothing, for one cause. `waits_for` is the op whose result it waits for, where
/// there is one.
struct Bubble {
  double start = 0;
  double end = 0;
  IdleCause cause = IdleCause::Dependency;
  std::optional<Place> waits_for = std::nullopt;
};

/// A tensor on its way from the op that made it to the op that needs it, on another worker.
struct Message {
  Place from;
  Place to;
  double sent = 0;
  double arrived = 0;
};

/// The sum of a parameter group's gradients over the workers that hold it, on a lane of its own beside the ops.
struct TimedAllReduce {
  ParameterGroupId group;
  double start = 0;
  double end = 0;
  std::optional<Place> launched_by = std::nullopt;  // the op after which the last of its workers launched it
  std::size_t after = 0;                            // how many of the worker's own ops come before its own launch
};

/// The optimizer step of all stages that a worker holds (in an asynchronous schedule: of one, its sum of gradients
/// included), at a time when it runs no op.
struct TimedUpdate {
  std::size_t after = 0;  // how many of the worker's ops come before it
  double start = 0;
  double end = 0;
};

/// What a worker holds from `time` on, until its next point.
struct MemoryPoint {
  double time = 0;
  double amount = 0;
};

struct WorkerTimeline {
  std::vector<TimedOp> ops;         // one for each op of the schedule's worker, in order
  double busy = 0;                  // sum of the ops' durations
  double idle = 0;                  // makespan - busy: the bubbles
  std::int64_t peak_in_flight = 0;  // most (replica, stage, micro-batch) forwarded here whose B or W has not ended
  double inner_idle = 0;            // the part of `idle` between its own first and last op
  double peak_stage_units = 0;      // peak_in_flight, in activations of one worker's share of the model
  std::int64_t peak_weight_versions = 1;         // most versions of one stage's weights that are kept at once
  std::vector<TimedAllReduce> all_reduces = {};  // in order of launch; none where they cost nothing
  std::vector<TimedUpdate> updates = {};         // in order; one a step where the schedule is synchronous
};

/// Whether the op at `position` is the first of a pair whose ops run at one time.
[[nodiscard]] inline bool runs_with_next(const std::vector<Op>& ops, const WorkerTimeline& timeline,
                                         std::size_t position) {
  return ops[position].paired && position + 1 < ops.size() &&
         timeline.ops[position + 1].start < timeline.ops[position].end;
}

struct Timeline {
  std::vector<WorkerTimeline> workers;
  double makespan = 0;         // until the last op, all-reduce and update has ended
  double bubble_ratio = 0;     // idle time of all workers / (workers * makespan)
  double lower_bound = 0;      // no order of these ops on these workers can be faster
  double ops_end = 0;          // end of the last op: the makespan without what all-reduces and updates add at the end
  double inner_bubble = 0;     // the largest inner_idle
  double makespan_bubble = 0;  // makespan - busy time of the busiest worker: what the step takes beyond its work
  std::vector<double> step_ends = {};  // T(k): when step k is done on all workers
  double period = 0;  // T(k+1) - T(k) in the middle of the run; the makespan where it has one step only
};

/// What a picture shows beyond the ops' times; derived from a timeline, at a cost linear in the ops.
struct Explanation {
  std::vector<std::vector<Bubble>> bubbles;              // [worker], in order of time; together the worker's idle time
  std::vector<Message> messages;                         // in order of `from`
  std::vector<std::vector<TimedAllReduce>> all_reduces;  // [worker], in order of start
  std::vector<std::vector<MemoryPoint>> memory;          // [worker], bytes, or stage units where no bytes are known
  std::vector<Place> critical_path;                      // ops that make the makespan, first to last
};

/// Length of the bubbles of some workers together, by cause.
[[nodiscard]] std::array<double, kIdleCauses> idle_by_cause(std::span<const std::vector<Bubble>> workers);

}  // namespace chimera
