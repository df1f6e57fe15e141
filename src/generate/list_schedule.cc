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

/// A micro-batch on a worker, in slices of its stages.
struct Visit {
  std::int32_t in_flight = 0;
  std::int32_t ended = 0;
};

struct Worker {
  bool busy = false;
  bool touched = false;  // Whether an event at the current time affects it
  ReadyOps forwards;     // Ready forwards with a stage credit
  ReadyOps backwards;    // Ready B and I
  // Ready W, best first. They become ready almost in this order, and there may be thousands: a heap would be slower.
  std::deque<RankedOp> weights;
  std::int64_t in_flight = 0;
  std::vector<std::pair<ReplicaId, StageId>> copies;  // Stages here, ascending
  std::int64_t credits = kNoLimit;
  std::int64_t reserved = 0;  // Credits for the oldest micro-batch
  std::size_t oldest = 0;     // Index in by_age_ of the first micro-batch that has not ended here
  std::vector<Visit> visits;  // [micro-batch], if credits are limited
};

std::size_t num_workers(const Placement& placement) {
  std::size_t workers = 0;
  for (const auto& row : placement.worker_of) {
    for (const WorkerId w : row) workers = std::max(workers, w.index() + 1);
  }
  return workers;
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
        stages_(task.placement.worker_of.at(0).size()) {
    order_micro_batches();
    lay_out_stages();
    lay_out_workers();
    auto& schedule = result_.schedule;
    schedule.stages = static_cast<std::int64_t>(stages_);
    schedule.micro_batches = static_cast<std::int64_t>(task.replica_of.size());
    schedule.placement = task.placement;
    schedule.slices = slices_;
    schedule.workers.resize(workers_.size());
  }

  ListResult run() {
    for (std::size_t r = 0; r < members_.size(); ++r) {
      const ReplicaId replica(static_cast<std::int64_t>(r));
      copy(replica, StageId(0)).arrived = members_[r].size() * static_cast<std::size_t>(slices_);
      offer_forward(replica, StageId(0));
    }
    for (std::size_t w = 0; w < workers_.size(); ++w) begin_best(w);
    while (take_events_of_next_instant()) {
      for (const std::size_t w : touched_) {
        workers_[w].touched = false;
        if (!workers_[w].busy) begin_best(w);
      }
      touched_.clear();
    }
    const std::int64_t all = result_.schedule.stages * std::ssize(age_) * slices_ * (task_.split_backward ? 3 : 2);
    require_invariant(num_ops(result_.schedule) == all, "list scheduling ended before all ops had run");
    return std::move(result_);
  }

 private:
  void order_micro_batches() {
    members_.resize(task_.placement.num_replicas());
    admitted_.resize(members_.size(), 0);
    for (std::size_t m = 0; m < task_.replica_of.size(); ++m) {
      auto& members = members_[task_.replica_of[m].index()];
      age_.push_back(static_cast<std::int64_t>(members.size()));
      members.emplace_back(static_cast<std::int64_t>(m));
      by_age_.emplace_back(static_cast<std::int64_t>(m));
    }
    std::sort(by_age_.begin(), by_age_.end(), [this](MicroBatchId a, MicroBatchId b) {
      if (age_[a.index()] != age_[b.index()]) return age_[a.index()] < age_[b.index()];
      return task_.replica_of[a.index()] < task_.replica_of[b.index()];
    });
  }

  void lay_out_stages() {
    workers_.resize(num_workers(task_.placement));
    for (std::size_t r = 0; r < members_.size(); ++r) {
      for (std::size_t s = 0; s < stages_; ++s) {
        StageCopy& copy = copies_.emplace_back();
        copy.worker = task_.placement.worker_of[r][s];
        if (slices_ > 1) copy.gradients.resize(members_[r].size());
        workers_[copy.worker.index()].copies.emplace_back(static_cast<std::int64_t>(r), static_cast<std::int64_t>(s));
        if (task_.stage_credits.empty()) continue;
        copy.credits = task_.stage_credits[r][s];
        if (copy.credits >= slices_ || members_[r].empty()) continue;
        throw InternalError(
            fmt::format("worker {} waits for a credit of stage {} of replica {}, which has {}; a micro-batch needs {}",
                        copy.worker.value(), s, r, copy.credits, slices_));
      }
    }
  }

  void lay_out_workers() {
    if (task_.worker_credits.empty()) return;
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      Worker& worker = workers_[w];
      worker.credits = task_.worker_credits[w];
      for (std::size_t r = 0; r < members_.size(); ++r) {
        if (members_[r].empty()) continue;
        const std::int64_t needed = slices_here(worker, ReplicaId(static_cast<std::int64_t>(r)));
        worker.reserved = std::max(worker.reserved, needed);
        if (needed <= worker.credits) continue;
        throw InternalError(fmt::format(
            "worker {} waits for a credit, of which it has {}; one micro-batch of replica {} needs {} there", w,
            worker.credits, r, needed));
      }
      worker.visits.resize(task_.replica_of.size());
      advance_oldest(worker);
    }
  }

  static std::span<const std::pair<ReplicaId, StageId>> stages_here(const Worker& worker, ReplicaId replica) {
    const auto before = [](const auto& a, const auto& b) { return a.first < b.first; };
    const auto [begin, end] =
        std::equal_range(worker.copies.begin(), worker.copies.end(), std::pair(replica, StageId()), before);
    return {worker.copies.data() + (begin - worker.copies.begin()), static_cast<std::size_t>(end - begin)};
  }

  /// Counts slices of one micro-batch.
  std::int64_t slices_here(const Worker& worker, ReplicaId replica) const {
    return slices_ * std::ssize(stages_here(worker, replica));
  }

  StageCopy& copy(ReplicaId replica, StageId stage) { return copies_[replica.index() * stages_ + stage.index()]; }
  StageCopy& copy(const Op& op) { return copy(op.replica, op.stage); }

  RankedOp ranked(const Op& op) const {
    const std::int64_t age =
        age_[op.micro_batch.index()] * slices_ + (op.kind == OpKind::Forward ? op.slice : slices_ - 1 - op.slice);
    return {rank_(op, age), static_cast<std::int32_t>(age), op};
  }

  // A stage runs its forwards in one order, so a count identifies the next one.
  Op next_forward(ReplicaId replica, StageId stage) {
    const auto begun = static_cast<std::int64_t>(copy(replica, stage).begun);
    Op op = sliced_op(OpKind::Forward, replica, stage, begun, slices_);
    op.micro_batch = members_[replica.index()][op.micro_batch.index()];
    return op;
  }

  Gradients& gradients(const Op& op) {
    return copy(op).gradients[static_cast<std::size_t>(age_[op.micro_batch.index()])];
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
      add_gradients(op, op.stage.index() + 1 == stages_ ? slices_ : 1);
    }
    touch(at.worker);
  }

  void send(WorkerId from, const Op& consumer) {
    // A message without latency is no event, because events of one instant come before any choice.
    if (task_.latency_ticks == 0 || copy(consumer).worker == from) return make_ready(consumer);
    arrivals_.push_back({now_ + task_.latency_ticks, consumer});
  }

  void touch(WorkerId w) {
    Worker& worker = workers_[w.index()];
    if (worker.touched) return;
    worker.touched = true;
    touched_.push_back(w.index());
  }

  /// Returns false if there are none.
  bool take_events_of_next_instant() {
    constexpr std::int64_t kNever = kNoLimit;
    const auto time_of = [](const std::deque<Event>& events) { return events.empty() ? kNever : events.front().time; };
    now_ = std::min({time_of(ends_), time_of(double_ends_), time_of(arrivals_)});
    if (now_ == kNever) return false;
    for (; time_of(arrivals_) == now_; arrivals_.pop_front()) make_ready(arrivals_.front().op);
    for (; time_of(ends_) == now_; ends_.pop_front()) end(ends_.front().op);
    for (; time_of(double_ends_) == now_; double_ends_.pop_front()) end(double_ends_.front().op);
    return true;
  }

  void end(const Op& op) {
    const WorkerId w = copy(op).worker;
    workers_[w.index()].busy = false;
    touch(w);
    result_.makespan = now_;
    if (gives_weight_gradient(op.kind)) return_credits(op);
    Op next = op;
    if (op.kind == OpKind::Forward) {
      const bool last_stage = op.stage.index() + 1 == stages_;
      if (last_stage) {
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
    Worker& worker = workers_[at.worker.index()];
    --at.in_flight;
    --worker.in_flight;
    offer_forward(op.replica, op.stage);
    if (worker.visits.empty()) return;
    Visit& visit = worker.visits[op.micro_batch.index()];
    --visit.in_flight;
    ++visit.ended;
    advance_oldest(worker);
  }

  void advance_oldest(Worker& worker) const {
    const auto ended = [&](MicroBatchId m) {
      return worker.visits[m.index()].ended == slices_here(worker, task_.replica_of[m.index()]);
    };
    while (worker.oldest < by_age_.size() && ended(by_age_[worker.oldest])) ++worker.oldest;
  }

  // If credits are short, only the oldest unfinished micro-batch may start: it has credits reserved, and its backwards
  // return them. Without this rule, younger micro-batches could take all credits and wait for it forever.
  /// Removes the best ready forward that credits allow and that runs before `rival`.
  std::optional<Op> take_forward(Worker& worker, const RankedOp* rival) {
    const auto wins = [&](const RankedOp& forward) { return rival == nullptr || runs_after(*rival, forward); };
    while (!worker.forwards.empty() && begun(worker.forwards.top().op)) worker.forwards.pop();
    if (worker.forwards.empty() || !wins(worker.forwards.top())) return std::nullopt;
    if (worker.visits.empty() || allows_any_forward(worker) ||
        worker.forwards.top().op.micro_batch == by_age_[worker.oldest]) {
      const Op op = worker.forwards.top().op;
      worker.forwards.pop();
      return op;
    }
    return oldest_forward(worker, wins);
  }

  bool begun(const Op& forward) {
    return copy(forward).begun > static_cast<std::size_t>(age_[forward.micro_batch.index()] * slices_ + forward.slice);
  }

  bool allows_any_forward(const Worker& worker) const {
    const std::int64_t of_oldest = worker.visits[by_age_[worker.oldest].index()].in_flight;
    return worker.in_flight - of_oldest < worker.credits - worker.reserved;
  }

  /// The op stays in `forwards`, where begun() detects it.
  template <class Wins>
  std::optional<Op> oldest_forward(const Worker& worker, const Wins& wins) {
    const MicroBatchId oldest = by_age_[worker.oldest];
    const ReplicaId replica = task_.replica_of[oldest.index()];
    std::optional<RankedOp> best;
    for (const auto& [_, stage] : stages_here(worker, replica)) {
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
    const bool is_full = weight != nullptr && worker.in_flight >= limits_.most_held;
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
    Worker& worker = workers_[at.worker.index()];
    at.offered = false;
    if (forward.stage == StageId(0)) ++admitted_[forward.replica.index()];
    ++at.begun;
    ++at.in_flight;
    result_.peak_in_flight = std::max(result_.peak_in_flight, ++worker.in_flight);
    if (!worker.visits.empty()) ++worker.visits[forward.micro_batch.index()].in_flight;
  }

  void begin(std::size_t w, const Op& op) {
    workers_[w].busy = true;
    result_.schedule.workers[w].push_back(op);
    auto& ends = op.kind == OpKind::Backward ? double_ends_ : ends_;
    ends.push_back({now_ + unit_duration(op.kind) * task_.op_ticks, op});
  }

  const ListTask& task_;
  const ListRank& rank_;
  const DepthLimits& limits_;
  std::int64_t slices_;
  std::size_t stages_;
  std::vector<std::vector<MicroBatchId>> members_;  // [replica], ascending
  std::vector<std::int64_t> age_;                   // [micro-batch]
  std::vector<MicroBatchId> by_age_;                // Oldest first
  std::vector<std::int64_t> admitted_;              // [replica]: forwards at stage 0 without an input gradient there
  std::vector<StageCopy> copies_;                   // [replica * stages + stage]
  std::vector<Worker> workers_;
  std::vector<std::size_t> touched_;
  // Events of one list have one delay, so each list is in order of time, as a heap of all would be, but for less.
  std::deque<Event> arrivals_;
  std::deque<Event> ends_;
  std::deque<Event> double_ends_;  // Of B, which takes twice as long
  std::int64_t now_ = 0;
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
