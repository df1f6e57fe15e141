// list_schedule() is a simulation by events. EventQueues has the ends of ops and the arrivals of messages in order of
// time. An event makes ops ready, which enter the queues of their worker. After all events of an instant, each worker
// that they affected starts the best of its ready ops (begin_best()). Forwards are held back by up to three limits:
// credits of their stage (StageCopy), credits of their worker (WorkerCredits), and, for deepest_first(), the number of
// admitted micro-batches (DepthLimits).

#include "generate/list_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <queue>
#include <span>
#include <utility>

#include "core/invariant.h"
#include "generate/shape.h"
#include "schedule/dependencies.h"

namespace chimera {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

struct RankedOp {
  std::int64_t rank = 0;
  std::int32_t age = 0;  // 32 bits keep the entry of a queue at 32 bytes
  Op op;
};

bool runs_after(const RankedOp& a, const RankedOp& b) {
  if (a.rank != b.rank) return a.rank > b.rank;
  if (a.age != b.age) return a.age > b.age;
  if (a.op.stage != b.op.stage) return a.op.stage < b.op.stage;
  return a.op.replica > b.op.replica;
}
using ReadyOps = std::priority_queue<RankedOp, std::vector<RankedOp>,
                                     decltype([](const RankedOp& a, const RankedOp& b) { return runs_after(a, b); })>;

struct Event {
  std::int64_t time = 0;
  Op op;
};

/// Slices of a micro-batch at a stage.
struct Gradients {
  std::int16_t arrived = 0;
  std::int16_t ended = 0;  // With an ended B or I
};

struct StageCopy {
  WorkerId worker;
  std::int64_t credits = kNoLimit;
  std::int64_t in_flight = 0;
  std::size_t arrived = 0;  // Forwards with arrived input
  std::size_t begun = 0;
  bool offered = false;              // Its next forward is in its worker's `forwards`
  std::vector<Gradients> gradients;  // [index of the micro-batch in its replica], if it has several slices
};

/// Micro-batches by age. The age of a micro-batch is the number of those that its replica runs before it.
struct Ages {
  std::vector<std::vector<MicroBatchId>> members = {};  // [replica], ascending
  std::vector<std::int64_t> age_of = {};                // [micro-batch]
  std::vector<MicroBatchId> oldest_first = {};          // Ties: smaller replica
};

// Replicas run their micro-batches independently, so age and not the id tells which micro-batch is older.
Ages order_by_age(const ListTask& task) {
  Ages ages;
  ages.members.resize(task.placement.num_replicas());
  for (std::size_t m = 0; m < task.replica_of.size(); ++m) {
    auto& members = ages.members[task.replica_of[m].index()];
    ages.age_of.push_back(std::ssize(members));
    members.emplace_back(static_cast<std::int64_t>(m));
    ages.oldest_first.emplace_back(static_cast<std::int64_t>(m));
  }
  std::sort(ages.oldest_first.begin(), ages.oldest_first.end(), [&](MicroBatchId a, MicroBatchId b) {
    if (ages.age_of[a.index()] != ages.age_of[b.index()]) return ages.age_of[a.index()] < ages.age_of[b.index()];
    return task.replica_of[a.index()] < task.replica_of[b.index()];
  });
  return ages;
}

/// Slices in flight on a worker, counted once for each of its stages, and their limit. If credits are short, only the
/// oldest unfinished micro-batch may start: it has credits reserved, and its backwards return them. Without this rule,
/// younger micro-batches could take all credits and wait for it forever.
class WorkerCredits {
 public:
  /// `needed`: credits that one micro-batch of each replica needs here. Without a call there is no limit.
  void limit(std::int64_t credits, const std::vector<std::int64_t>& needed, const ListTask& task, const Ages& ages) {
    // The rest is reserved for the oldest micro-batch, whatever its replica.
    free_ = credits - *std::ranges::max_element(needed);
    oldest_first_ = ages.oldest_first;
    for (const ReplicaId replica : task.replica_of)
      visits_.push_back({.left = static_cast<std::int32_t>(needed[replica.index()])});
    advance_oldest();
  }

  [[nodiscard]] std::int64_t in_flight() const { return in_flight_; }
  [[nodiscard]] MicroBatchId oldest() const { return oldest_first_[oldest_]; }

  [[nodiscard]] bool allow(MicroBatchId m) const {
    // Activations of the oldest micro-batch are in the reserve, so they do not count against the others.
    return visits_.empty() || in_flight_ - visits_[oldest().index()].in_flight < free_ || m == oldest();
  }

  void take(MicroBatchId m) {
    ++in_flight_;
    if (!visits_.empty()) ++visits_[m.index()].in_flight;
  }

  void give_back(MicroBatchId m) {
    --in_flight_;
    if (visits_.empty()) return;
    --visits_[m.index()].in_flight;
    --visits_[m.index()].left;
    advance_oldest();
  }

 private:
  /// A micro-batch here, in slices of this worker's stages.
  struct Visit {
    std::int32_t in_flight = 0;
    std::int32_t left = 0;  // Without an ended B or W
  };

  void advance_oldest() {
    while (oldest_ < oldest_first_.size() && visits_[oldest().index()].left == 0) ++oldest_;
  }

  std::int64_t in_flight_ = 0;
  std::int64_t free_ = kNoLimit;  // Credits that are not reserved
  std::span<const MicroBatchId> oldest_first_;
  std::size_t oldest_ = 0;     // Index of the first micro-batch that has not ended here
  std::vector<Visit> visits_;  // [micro-batch], if credits are limited
};

struct Worker {
  bool busy = false;
  bool touched = false;  // Whether an event at the current time affects it
  ReadyOps forwards;     // Ready forwards with a stage credit
  ReadyOps backwards;    // Ready B and I
  // Ready W, best first. They become ready almost in this order, and there may be thousands: a heap would be slower.
  std::deque<RankedOp> weights;
  std::vector<std::pair<ReplicaId, StageId>> copies;  // Stages here, ascending
  WorkerCredits credits;

  [[nodiscard]] std::span<const std::pair<ReplicaId, StageId>> stages_of(ReplicaId replica) const {
    const auto before = [](const auto& a, const auto& b) { return a.first < b.first; };
    const auto [begin, end] = std::equal_range(copies.begin(), copies.end(), std::pair(replica, StageId()), before);
    return {copies.data() + (begin - copies.begin()), static_cast<std::size_t>(end - begin)};
  }
};

/// Ends of ops and arrivals of messages, by time. Events of one queue have one delay, so each queue is in order of
/// time, without the cost of a heap.
class EventQueues {
 public:
  explicit EventQueues(std::int64_t latency_ticks) : latency_ticks_(latency_ticks) {}

  [[nodiscard]] std::int64_t now() const { return now_; }

  void add_arrival(const Op& consumer) { arrivals_.push_back({now_ + latency_ticks_, consumer}); }

  void add_end(const Op& op, std::int64_t op_ticks) {
    const std::int64_t duration = unit_duration(op.kind) * op_ticks;
    auto ends = std::ranges::lower_bound(ends_, duration, {}, &Ends::duration);
    if (ends == ends_.end() || ends->duration != duration) ends = ends_.insert(ends, {duration, {}});
    ends->events.push_back({now_ + duration, op});
  }

  /// Advances to the next instant with events and takes them, arrivals first. Returns false if there are none.
  bool take_next_instant(const auto& take_arrival, const auto& take_end) {
    const auto time_of = [](const std::deque<Event>& events) {
      return events.empty() ? kNoLimit : events.front().time;
    };
    now_ = time_of(arrivals_);
    for (const Ends& ends : ends_) now_ = std::min(now_, time_of(ends.events));
    if (now_ == kNoLimit) return false;
    for (; time_of(arrivals_) == now_; arrivals_.pop_front()) take_arrival(arrivals_.front().op);
    for (auto& [duration, events] : ends_) {
      for (; time_of(events) == now_; events.pop_front()) take_end(events.front().op);
    }
    return true;
  }

 private:
  struct Ends {
    std::int64_t duration = 0;
    std::deque<Event> events;
  };

  std::int64_t latency_ticks_;
  std::int64_t now_ = 0;
  std::deque<Event> arrivals_;
  std::vector<Ends> ends_;  // By duration: few are different
};

std::size_t num_workers(const Placement& placement) {
  std::size_t workers = 0;
  for (const auto& row : placement.worker_of) {
    for (const WorkerId w : row) workers = std::max(workers, w.index() + 1);
  }
  return workers;
}

Schedule start_schedule(const ListTask& task) {
  Schedule schedule;
  schedule.stages = std::ssize(task.placement.worker_of.at(0));
  schedule.micro_batches = std::ssize(task.replica_of);
  schedule.placement = task.placement;
  schedule.slices = task.slices;
  schedule.workers.resize(num_workers(task.placement));
  return schedule;
}

// An event is the end of an op or the arrival of a message. All events of an instant are taken before any worker starts
// an op, so that the choice does not depend on the order of events. A worker is tried again only if an event affected
// it (`touched`), so an op costs only its queues.
class ListScheduler {
 public:
  ListScheduler(const ListTask& task, const ListRank& rank, const DepthLimits& limits)
      : task_(task),
        rank_(rank),
        limits_(limits),
        slices_(task.slices),
        stages_(task.placement.worker_of.at(0).size()),
        ages_(order_by_age(task)),
        admitted_(task.placement.num_replicas(), 0),
        events_(task.latency_ticks) {
    lay_out_stages();
    lay_out_workers();
    result_.schedule = start_schedule(task);
  }

  ListResult run() {
    for (std::size_t r = 0; r < ages_.members.size(); ++r) {
      const ReplicaId replica(static_cast<std::int64_t>(r));
      // The input of stage 0 is data, which is there from the start.
      copy(replica, StageId(0)).arrived = ages_.members[r].size() * static_cast<std::size_t>(slices_);
      offer_forward(replica, StageId(0));
    }
    for (std::size_t w = 0; w < workers_.size(); ++w) begin_best(w);
    while (events_.take_next_instant([&](const Op& op) { make_ready(op); }, [&](const Op& op) { end(op); })) {
      for (const std::size_t w : touched_) {
        workers_[w].touched = false;
        if (!workers_[w].busy) begin_best(w);
      }
      touched_.clear();
    }
    const std::int64_t all =
        result_.schedule.stages * std::ssize(ages_.age_of) * slices_ * (task_.split_backward ? 3 : 2);
    require_invariant(num_ops(result_.schedule) == all, "list scheduling ended before all ops had run");
    return std::move(result_);
  }

 private:
  void lay_out_stages() {
    workers_.resize(num_workers(task_.placement));
    for (std::size_t r = 0; r < ages_.members.size(); ++r) {
      for (std::size_t s = 0; s < stages_; ++s) {
        StageCopy& copy = copies_.emplace_back();
        copy.worker = task_.placement.worker_of[r][s];
        if (slices_ > 1) copy.gradients.resize(ages_.members[r].size());
        workers_[copy.worker.index()].copies.emplace_back(static_cast<std::int64_t>(r), static_cast<std::int64_t>(s));
        if (task_.stage_credits.empty()) continue;
        copy.credits = task_.stage_credits[r][s];
        if (copy.credits >= slices_ || ages_.members[r].empty()) continue;
        throw InternalError(
            fmt::format("worker {} waits for a credit of stage {} of replica {}, which has {}; a micro-batch needs {}",
                        copy.worker.value(), s, r, copy.credits, slices_));
      }
    }
  }

  void lay_out_workers() {
    if (task_.worker_credits.empty()) return;
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      const std::int64_t credits = task_.worker_credits[w];
      std::vector<std::int64_t> needed(ages_.members.size(), 0);
      for (std::size_t r = 0; r < needed.size(); ++r) {
        needed[r] = slices_ * std::ssize(workers_[w].stages_of(ReplicaId(static_cast<std::int64_t>(r))));
        if (ages_.members[r].empty()) needed[r] = 0;
        if (needed[r] <= credits) continue;
        throw InternalError(fmt::format(
            "worker {} waits for a credit, of which it has {}; one micro-batch of replica {} needs {} there", w,
            credits, r, needed[r]));
      }
      workers_[w].credits.limit(credits, needed, task_, ages_);
    }
  }

  StageCopy& copy(ReplicaId replica, StageId stage) { return copies_[replica.index() * stages_ + stage.index()]; }
  StageCopy& copy(const Op& op) { return copy(op.replica, op.stage); }

  RankedOp ranked(const Op& op) const {
    const std::int64_t age = ages_.age_of[op.micro_batch.index()] * slices_ +
                             (op.kind == OpKind::Forward ? op.slice : slices_ - 1 - op.slice);
    return {rank_(op, age), static_cast<std::int32_t>(age), op};
  }

  // A stage runs its forwards in one order, so a count identifies the next one.
  Op next_forward(ReplicaId replica, StageId stage) {
    const auto begun = static_cast<std::int64_t>(copy(replica, stage).begun);
    Op op = sliced_op(OpKind::Forward, replica, stage, begun, slices_);
    op.micro_batch = ages_.members[replica.index()][op.micro_batch.index()];
    return op;
  }

  Gradients& gradients(const Op& op) {
    return copy(op).gradients[static_cast<std::size_t>(ages_.age_of[op.micro_batch.index()])];
  }

  /// The slice before must have ended.
  void offer_backward(Op op) {
    const Gradients& at = gradients(op);
    if (at.arrived == at.ended) return;
    op.slice = static_cast<std::int16_t>(slices_ - 1 - at.ended);
    workers_[copy(op).worker.index()].backwards.push(ranked(op));
  }

  // Slices of a micro-batch run backward one after the other. Only the next one is offered; the end of its backward
  // offers the slice before it.
  void add_gradients(const Op& op, std::int64_t count) {
    if (slices_ == 1) return workers_[copy(op).worker.index()].backwards.push(ranked(op));
    Gradients& at = gradients(op);
    const bool waits = at.arrived == at.ended;
    at.arrived = static_cast<std::int16_t>(at.arrived + count);
    if (waits) offer_backward(op);
  }

  void offer_forward(ReplicaId replica, StageId stage) {
    // A stage runs its forwards in one order, so at most one of them is on offer: the next.
    StageCopy& at = copy(replica, stage);
    if (at.offered || at.begun == at.arrived || at.in_flight == at.credits) return;
    if (stage == StageId(0) && admitted_[replica.index()] == limits_.admitted) return;
    at.offered = true;
    workers_[at.worker.index()].forwards.push(ranked(next_forward(replica, stage)));
  }

  void make_ready(const Op& op) {
    StageCopy& at = copy(op);
    if (op.kind == OpKind::Forward) {
      ++at.arrived;
      offer_forward(op.replica, op.stage);
    } else if (op.kind == OpKind::BackwardWeight) {
      auto& weights = workers_[at.worker.index()].weights;
      const RankedOp ready = ranked(op);
      // Mostly the last place: a search of thousands of entries would touch memory that is in no cache.
      auto place = weights.end();
      if (!weights.empty() && runs_after(weights.back(), ready))
        place = std::ranges::upper_bound(weights, ready, [](auto& a, auto& b) { return runs_after(b, a); });
      weights.insert(place, ready);
    } else {
      // At the last stage no gradient arrives by message: those of all slices can be computed.
      add_gradients(op, op.stage.index() + 1 == stages_ ? slices_ : 1);
    }
    touch(at.worker);
  }

  void send(WorkerId from, const Op& consumer) {
    // A message without latency is no event, because events of one instant come before any choice.
    if (task_.latency_ticks == 0 || copy(consumer).worker == from) return make_ready(consumer);
    events_.add_arrival(consumer);
  }

  void touch(WorkerId w) {
    Worker& worker = workers_[w.index()];
    if (worker.touched) return;
    worker.touched = true;
    touched_.push_back(w.index());
  }

  void end(const Op& op) {
    const WorkerId w = copy(op).worker;
    workers_[w.index()].busy = false;
    touch(w);
    result_.makespan = events_.now();
    if (gives_weight_gradient(op.kind)) return_credits(op);
    Op next = op;
    if (op.kind == OpKind::Forward) {
      const bool last_stage = op.stage.index() + 1 == stages_;
      if (last_stage) {
        // The backward of a micro-batch begins with its last slice. Before that slice has ended, nothing can run.
        if (op.slice + 1 < slices_) return;
        next.kind = task_.split_backward ? OpKind::BackwardInput : OpKind::Backward;
      } else {
        next.stage = StageId(op.stage.value() + 1);
      }
      return send(w, next);
    }
    if (op.kind == OpKind::BackwardInput) {
      next.kind = OpKind::BackwardWeight;
      make_ready(next);
    }
    if (op.kind == OpKind::BackwardWeight) return;
    if (slices_ > 1) {
      ++gradients(op).ended;
      offer_backward(op);
    }
    if (op.stage == StageId(0)) {
      --admitted_[op.replica.index()];
      return offer_forward(op.replica, op.stage);
    }
    next = op;
    next.stage = StageId(op.stage.value() - 1);
    send(w, next);
  }

  void return_credits(const Op& op) {
    StageCopy& at = copy(op);
    --at.in_flight;
    offer_forward(op.replica, op.stage);
    workers_[at.worker.index()].credits.give_back(op.micro_batch);
  }

  /// Removes the best ready forward that credits allow and that runs before `rival`.
  std::optional<Op> take_forward(Worker& worker, const RankedOp* rival) {
    const auto wins = [&](const RankedOp& forward) { return rival == nullptr || runs_after(*rival, forward); };
    // oldest_forward() takes ops out of the middle of the heap without removing them.
    while (!worker.forwards.empty() && begun(worker.forwards.top().op)) worker.forwards.pop();
    if (worker.forwards.empty() || !wins(worker.forwards.top())) return std::nullopt;
    if (worker.credits.allow(worker.forwards.top().op.micro_batch)) {
      const Op op = worker.forwards.top().op;
      worker.forwards.pop();
      return op;
    }
    return oldest_forward(worker, wins);
  }

  bool begun(const Op& forward) {
    return copy(forward).begun >
           static_cast<std::size_t>(ages_.age_of[forward.micro_batch.index()] * slices_ + forward.slice);
  }

  /// The op stays in `forwards`, where begun() detects it.
  template <class Wins>
  std::optional<Op> oldest_forward(const Worker& worker, const Wins& wins) {
    const MicroBatchId oldest = worker.credits.oldest();
    const ReplicaId replica = task_.replica_of[oldest.index()];
    std::optional<RankedOp> best;
    for (const auto& [_, stage] : worker.stages_of(replica)) {
      if (!copy(replica, stage).offered) continue;
      const RankedOp forward = ranked(next_forward(replica, stage));
      if (forward.op.micro_batch != oldest || !wins(forward)) continue;
      if (!best || runs_after(*best, forward)) best = forward;
    }
    return best ? std::optional(best->op) : std::nullopt;
  }

  void begin_best(std::size_t w) {
    Worker& worker = workers_[w];
    const RankedOp* backward = worker.backwards.empty() ? nullptr : &worker.backwards.top();
    const RankedOp* weight = worker.weights.empty() ? nullptr : &worker.weights.front();
    // A worker at its limit first frees activations, which only a W does: this limit is for split backwards.
    const bool is_full = weight != nullptr && worker.credits.in_flight() >= limits_.most_held;
    const bool weight_next = weight != nullptr && (is_full || backward == nullptr || runs_after(*backward, *weight));
    const RankedOp* rival = weight_next ? weight : backward;
    if (const auto forward = is_full ? std::nullopt : take_forward(worker, rival)) {
      take_credits(*forward);
      begin(w, *forward);
      offer_forward(forward->replica, forward->stage);
    } else if (rival != nullptr) {
      const Op op = rival->op;
      weight_next ? worker.weights.pop_front() : worker.backwards.pop();
      begin(w, op);
    }
  }

  void take_credits(const Op& forward) {
    StageCopy& at = copy(forward);
    WorkerCredits& credits = workers_[at.worker.index()].credits;
    at.offered = false;
    if (forward.stage == StageId(0)) ++admitted_[forward.replica.index()];
    ++at.begun;
    ++at.in_flight;
    credits.take(forward.micro_batch);
    result_.peak_in_flight = std::max(result_.peak_in_flight, credits.in_flight());
  }

  void begin(std::size_t w, const Op& op) {
    workers_[w].busy = true;
    result_.schedule.workers[w].push_back(op);
    events_.add_end(op, task_.worker_ticks.empty() ? task_.op_ticks : task_.worker_ticks[w]);
  }

  const ListTask& task_;
  const ListRank& rank_;
  const DepthLimits& limits_;
  std::int64_t slices_;
  std::size_t stages_;
  Ages ages_;
  std::vector<std::int64_t> admitted_;  // [replica]: forwards at stage 0 without an input gradient there
  std::vector<StageCopy> copies_;       // [replica * stages + stage]
  std::vector<Worker> workers_;
  std::vector<std::size_t> touched_;
  EventQueues events_;
  ListResult result_;
};

}  // namespace

ListResult list_schedule(const ListTask& task, const ListRank& rank) { return ListScheduler(task, rank, {}).run(); }

Schedule deepest_first(ListTask task, const DepthLimits& limits) {
  task.split_backward = true;
  const auto stages = static_cast<std::int64_t>(task.placement.worker_of.at(0).size());
  const auto replicas = static_cast<std::int64_t>(task.placement.num_replicas());
  constexpr std::int64_t kAfterForwards = 1'000'000'000'000;
  // The rank of an op is requested when it becomes ready, so a count gives the W in order of age.
  const ListRank deepest = [=, ready_weights = std::int64_t{0}](const Op& op, std::int64_t) mutable {
    if (op.kind == OpKind::BackwardWeight) return kAfterForwards + ready_weights++;
    const std::int64_t s = op.stage.value();
    const std::int64_t steps =
        op.kind == OpKind::Forward ? s : 2 * stages - 1 - s;  // Done, through all stages and back
    return op.replica.value() - steps * replicas;
  };
  return ListScheduler(task, deepest, limits).run().schedule;
}

// More activations in flight shorten the makespan up to a point. The smallest limit that reaches the deadline saves
// memory at no cost.
ListResult with_fewest_credits(ListTask task, const ListRank& rank, const CreditRange& credits, std::int64_t deadline) {
  // A full search over all credits would cost a simulation for each. At most 17 are tried, evenly spread.
  constexpr std::int64_t kSteps = 16;
  const std::size_t workers = num_workers(task.placement);
  const std::int64_t step = std::max<std::int64_t>(1, (credits.most - credits.least + kSteps - 1) / kSteps);
  std::optional<ListResult> best;
  for (std::int64_t each = credits.least; each <= credits.most; each += step) {
    task.worker_credits.assign(workers, each);
    ListResult result = list_schedule(task, rank);
    best = best ? pick_better(std::move(*best), std::move(result)) : std::move(result);
    if (best->makespan <= deadline) break;
  }
  return std::move(*best);
}

ListResult pick_better(ListResult a, ListResult b) {
  const auto merit = [](const ListResult& result) { return std::pair(result.makespan, result.peak_in_flight); };
  return merit(b) < merit(a) ? std::move(b) : std::move(a);
}

}  // namespace chimera
