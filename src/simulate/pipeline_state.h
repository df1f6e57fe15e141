#pragma once

// The state of a simulated pipeline, and the rules by which it changes: when a worker may begin its next activity, what
// this activity is, and what follows from its end. The state does not decide how long activities take. An event loop,
// called the clock, drives it: it calls ready() and begin_next(), decides when the activity ends, and calls finish():
//
//     ready(w) --> begin_next(w, now) --> ... time passes ... --> finish(work, w, now)
//
// There are two clocks. OwnCores in simulate.cc is for workers that do not slow each other down. An activity then ends
// a known time after its start. So this clock needs no queue of events: it runs one worker as far as its inputs allow,
// then another. run_on_shared_cores() (shared_cores.cc) is for workers that share cores or links. The end of an
// activity then depends on all other activities, so this clock handles events in the order of time. A worker repeats
// these activities:
//
//     recomputation, op, [own all-reduce, update]  per op, or pair of ops that run at once; in an asynchronous schedule
//                                                  also the part in brackets
//     end of ops, update                           per step of a synchronous schedule; the update waits for all workers
//                                                  if steps do not overlap

#include <algorithm>
#include <limits>

#include "schedule/dependencies.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "schedule/weight_versions.h"
#include "simulate/all_reduce_queues.h"
#include "simulate/contention.h"
#include "simulate/copy_engines.h"
#include "simulate/cost_table.h"
#include "simulate/steps.h"

namespace chimera {

/// Time of an event that has not happened yet.
inline constexpr double kNever = std::numeric_limits<double>::infinity();

/// Kinds of activities. The first four keep a worker busy; the last two run beside the ops of workers.
enum class ActivityKind : std::uint8_t {
  Recomputation,
  Op,
  OwnSum,   ///< the all-reduce before an update in an asynchronous schedule
  Update,   ///< an optimizer step
  Sum,      ///< an all-reduce of a synchronous step
  Message,  ///< a message's time on a link
};

/// An activity that a worker begins.
struct Activity {
  ActivityKind work = ActivityKind::Op;
  double time = 0;  // its duration on a core of its own, without contention
};

/// Progress of all workers. An argument `w` is a worker, `now` the time.
class PipelineState {
 public:
  /// Borrows `schedule` and `costs`. `ranges` is the result of step_ranges() (steps.h), [step][worker].
  /// `tracks_messages`: whether the clock decides when messages arrive, so that finish() must call its `send`. If
  /// false, finish() calls `send` only if CostTable::has_traffic(); otherwise every result arrives one delay after its
  /// op.
  PipelineState(const Schedule& schedule, std::vector<std::vector<StepRange>> ranges, const CostTable& costs,
                bool tracks_messages);
  PipelineState& operator=(PipelineState&&) = delete;

  [[nodiscard]] const OpTable& table() const { return table_; }
  [[nodiscard]] const CostTable& costs() const { return costs_; }
  [[nodiscard]] std::size_t num_workers() const { return workers_.size(); }
  /// Returns the all-reduces of synchronous steps. The clock calls AllReduceQueues::begin_ready() to start them, and
  /// end_sum() at their ends.
  [[nodiscard]] AllReduceQueues& sums() { return sums_; }
  /// Returns the op or pair that the worker runs next, or runs now.
  [[nodiscard]] std::span<const Op> next_ops(std::size_t w) const {
    return concurrent_ops(table_.schedule().workers[w], workers_[w].position, costs_.pairs());
  }

  /// Returns the index of the first op of next_ops().
  [[nodiscard]] OpIndex first_op(std::size_t w) const {
    return static_cast<OpIndex>(table_.first(w) + workers_[w].position);
  }

  /// Returns the stage of the asynchronous update that the worker runs next, or runs now. Requires that its next or
  /// running activity is the OwnSum or Update of an asynchronous schedule.
  [[nodiscard]] StageId updated_stage(std::size_t w) const {
    return table_.schedule().workers[w][*workers_[w].update_after].stage;
  }

  /// Returns the time at which the worker can begin its next activity; kNever while it is busy, or waits for an event
  /// whose time is not known yet.
  [[nodiscard]] double ready(std::size_t w) const {
    const Worker& worker = workers_[w];
    if (worker.update_after) return worker.free;
    if (worker.position < worker.end) return ops_ready(w);
    if (table_.schedule().updates) return kNever;
    if (!worker.has_ended_ops) return worker.free;
    if (worker.step < barrier_.steps) return std::max(worker.free, barrier_.passed);
    const bool is_alone = costs_.steps_overlap() && worker.step < ranges_.size() && sums_.is_free(w);
    return is_alone ? std::max(worker.free, sums_.free_since(w)) : kNever;
  }

  /// Returns an op that the worker's next op waits for: it has not run, or its message has no known time of arrival.
  /// Returns kNoOp if there is none.
  [[nodiscard]] OpIndex missing_input(std::size_t w) const {
    if (workers_[w].position == workers_[w].end) return kNoOp;
    for (const OpIndex input : workers_[w].inputs)
      if (input == kNoOp || arrival(input, w) == kNever) return input;
    return kNoOp;
  }

  /// Returns how many inputs of the op after the running one are still to come from other workers. On GPUs their
  /// receives wait beside the running op.
  [[nodiscard]] std::int64_t awaited_inputs(std::size_t w, double now) const {
    const std::size_t next = workers_[w].position + next_ops(w).size();
    if (next >= workers_[w].end) return 0;
    std::int64_t count = 0;
    for (const Op& op : concurrent_ops(table_.schedule().workers[w], next, costs_.pairs())) {
      for (const OpIndex input : table_.inputs(op))
        if (input != kNoOp && table_.worker(input) != w && arrived_[input] > now) ++count;
    }
    return count;
  }

  /// Begins the worker's next activity. Returns nullopt for the end of a step's ops, which takes no time; the clock
  /// then does not call finish(). Requires ready(w) <= now.
  std::optional<Activity> begin_next(std::size_t w, double now) {
    Worker& worker = workers_[w];
    if (worker.update_after) return begin_own_update(w, now);
    if (worker.position < worker.end) return begin_ops(w, now);
    if (!worker.has_ended_ops) {
      worker.has_ended_ops = true;
      launch_sums(w, now);
      reach_barrier(w);
      return std::nullopt;
    }
    timeline_.workers[w].updates.push_back({.after = worker.position, .start = now, .end = now});
    worker.free = kNever;
    return Activity{.work = ActivityKind::Update, .time = update_times_[w]};
  }

  /// Ends the worker's activity. Calls `send(made, to, now)` for each result that another worker needs. `send` returns
  /// the time of its arrival or, if this is not known yet, kNever; the clock then calls arrive() later.
  template <class Send>
  void finish(ActivityKind work, std::size_t w, double now, const Send& send) {
    workers_[w].free = now;
    if (work == ActivityKind::Op) finish_ops(w, now, send);
    if (work == ActivityKind::Update) finish_update(w, now);
  }

  /// Called when the message with the result of op `made` leaves its link. It arrives a delay later.
  void arrive(OpIndex made, double now);
  /// Called when the all-reduce of a parameter group ends.
  void end_sum(ParameterGroupId group, double now);

  /// Called at the end of the simulation. Throws ScheduleError if a worker has not run all ops of its step.
  void require_ends() const;
  /// Returns the times of all ops, all-reduces and updates, at the end of the simulation.
  [[nodiscard]] Timeline take_timeline() { return std::move(timeline_); }

 private:
  /// Inputs of an op or pair; kNoOp after the last.
  using Inputs = std::array<OpIndex, 6>;
  /// The fields of every op come first, in one line of the cache.
  struct alignas(64) Worker {
    double free = 0;                                           // when it became idle; kNever: it is busy
    std::uint32_t position = 0;                                // position of its next op
    std::uint32_t end = 0;                                     // position after the last op of the step
    Inputs inputs = {};                                        // inputs of its next op
    std::optional<double> recomputed = std::nullopt;           // start of the next op's recomputation
    std::optional<std::uint32_t> update_after = std::nullopt;  // asynchronous: position of an op with a pending update
    std::uint32_t step = 0;
    std::uint32_t launched = 0;                         // number of all-reduces launched in this step
    bool has_ended_ops = false;                         // whether the ops of this step have ended
    std::optional<double> update_start = std::nullopt;  // asynchronous: start of the update's all-reduce
    std::size_t sending = 0;                            // number of blocking messages with unknown arrival
    double sent = 0;                                    // latest known arrival of a blocking message
  };
  /// The updates of a synchronous step begin when all workers have ended their ops and all-reduces.
  struct Barrier {
    std::size_t workers = 0;  // number of workers at the barrier of the current step
    double last = 0;          // when the last of them arrived
    std::size_t steps = 0;    // number of barriers that were passed
    double passed = 0;        // when the last barrier was passed
  };

  [[nodiscard]] bool recomputes_first(std::size_t w) const {
    return costs_.recomputation(next_ops(w)) > 0 && !workers_[w].recomputed;
  }

  [[nodiscard]] double arrival(OpIndex made, std::size_t w) const {
    const bool is_own = made >= table_.first(w) && made < table_.first(w + 1);
    return is_own ? ops_[w][made - table_.first(w)].end : arrived_[made];
  }

  [[nodiscard]] double ops_ready(std::size_t w) const {
    const std::size_t position = workers_[w].position;
    const auto ops = next_ops(w);
    double start = std::max(workers_[w].free, copies_.loaded(w, position, position + ops.size()));
    if (recomputes_first(w)) return start;
    for (const OpIndex input : workers_[w].inputs) {
      if (input == kNoOp) break;
      start = std::max(start, arrival(input, w));
    }
    return start;
  }

  /// Looks the inputs up once for each op, because a clock calls ready() several times for it.
  void find_inputs(Worker& worker, std::size_t w) {
    auto next = worker.inputs.begin();
    for (const Op& op : next_ops(w)) {
      for (const OpIndex input : table_.inputs(op))
        if (input != kNoOp) *next++ = input;
    }
    if (next != worker.inputs.end()) *next = kNoOp;
  }

  /// Begins the next op or pair or, before it, its recomputation. Recomputation runs as soon as the worker is free, but
  /// in the timeline it is part of the op, and as late as possible.
  Activity begin_ops(std::size_t w, double now) {
    Worker& worker = workers_[w];
    const auto ops = next_ops(w);
    const double again = costs_.recomputation(ops);
    const double free = worker.free;
    worker.free = kNever;
    if (again > 0 && !worker.recomputed) {
      worker.recomputed = now;
      return {.work = ActivityKind::Recomputation, .time = again};
    }
    double start = now;
    if (worker.recomputed) start = now > free ? std::max(*worker.recomputed, now - again) : *worker.recomputed;
    for (std::size_t k = 0; k < ops.size(); ++k) ops_[w][worker.position + k].start = start;
    return {.work = ActivityKind::Op, .time = costs_.duration(ops) - again};
  }

  Activity begin_own_update(std::size_t w, double now);
  template <class Send>
  void finish_ops(std::size_t w, double now, const Send& send) {
    Worker& worker = workers_[w];
    const auto ops = next_ops(w);
    worker.recomputed.reset();
    worker.free = copies_.end_ops(w, worker.position, worker.position + ops.size(), now);
    for (const Op& op : ops) {
      ops_[w][worker.position].end = now;
      arrived_[first_op(w)] = now + costs_.delay(op);
      if (has_messages_) send_result(first_op(w), op, w, now, send);
      if (updates_.completes_update(op)) worker.update_after = worker.position;
      ++worker.position;
    }
    if (worker.position == worker.end) return;
    find_inputs(worker, w);
    launch_sums(w, now);
  }

  template <class Send>
  void send_result(OpIndex made, const Op& op, std::size_t w, double now, const Send& send) {
    const OpIndex consumer = table_.consumer(op);
    if (consumer == kNoOp || table_.worker(consumer) == w) return;
    arrived_[made] = send(made, table_.worker(consumer), now);
    if (!costs_.blocking_sends()) return;
    if (arrived_[made] == kNever) ++workers_[w].sending;
    workers_[w].free = std::max(workers_[w].free, arrived_[made]);
  }

  void finish_update(std::size_t w, double now);
  void begin_step(std::size_t w);
  void launch_sums(std::size_t w, double now);
  void reach_barrier(std::size_t w);

  OpTable table_;
  std::vector<std::vector<StepRange>> ranges_;
  const CostTable& costs_;
  Timeline timeline_;
  std::vector<TimedOp*> ops_;  // [worker]: its ops in timeline_; the end of an op is kNever until it has ended
  std::vector<std::vector<std::vector<AllReduceStart>>> launches_;  // [step][worker]; empty: no all-reduces
  AllReduceQueues sums_;
  std::vector<double> update_times_;  // [worker], at the end of a synchronous step
  UpdateCounter updates_;
  CopyEngines copies_;
  std::vector<Worker> workers_;
  Barrier barrier_;
  bool has_messages_;            // false: every result arrives one delay after its op
  std::vector<double> arrived_;  // [op]: arrival at another worker; kNever: unknown
};

/// Simulates the pipeline to its end, event by event; PipelineState::take_timeline() then returns the times. If ops
/// wait for each other in a cycle, it ends early, and PipelineState::require_ends() throws. An *activity* is an op,
/// update, message or all-reduce, and its duration in the costs is for rate 1. Workers of a node that run ops and
/// updates advance at rate 1 if there are enough cores; if k of them share fewer cores, at rate cores / k / (1 +
/// switching) (processor sharing). An all-reduce uses the fraction `share` (SharedCores::all_reduce_share) of a core on
/// each of its workers; if its computation runs at rate r, it advances at rate 1 / (1 - share + share / r). Messages
/// and waiting use no core. Overlapping activities also slow each other down by SharedCores::contention. With
/// contention, messages wait in queues for their links, because their speed may change in transit.
///
/// Between two events all rates are constant:
///
///     +-> next event: an activity ends, or a worker can begin --> end and begin activities --+
///     +------------ rates of all activities, from the cores and links in use  <-------------+
void run_on_shared_cores(PipelineState& state, const SharedCores& cores);

}  // namespace chimera
