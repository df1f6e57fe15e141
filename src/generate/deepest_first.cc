#include "generate/deepest_first.h"

#include <algorithm>
#include <deque>
#include <queue>
#include <tuple>

namespace chimera {
namespace {

class DeepestFirst {
 public:
  explicit DeepestFirst(const DeepestFirstTask& task)
      : task_(task),
        stages_(static_cast<std::int64_t>(task.placement.worker_of.at(0).size())),
        entrances_(task.placement.num_replicas()) {
    std::size_t workers = 0;
    for (const auto& row : task.placement.worker_of) {
      for (const WorkerId worker : row) workers = std::max(workers, worker.index() + 1);
    }
    workers_.resize(workers);
    for (std::size_t m = 0; m < task.replica_of.size(); ++m) {
      entrances_[task.replica_of[m].index()].members.emplace_back(static_cast<std::int64_t>(m));
    }
    schedule_.name = task.name;
    schedule_.stages = stages_;
    schedule_.micro_batches = std::ssize(task.replica_of);
    schedule_.placement = task.placement;
    schedule_.workers.resize(workers);
  }

  Schedule run() {
    for (std::size_t r = 0; r < entrances_.size(); ++r) admit(ReplicaId(static_cast<std::int64_t>(r)));
    begin_touched();
    while (!events_.empty()) {
      now_ = events_.top().time;
      while (!events_.empty() && events_.top().time == now_) {
        const Event event = events_.top();
        events_.pop();
        event.arrival ? make_ready(event.op) : end(event.op);
      }
      begin_touched();
    }
    return std::move(schedule_);
  }

 private:
  struct ReadyOp {
    std::int64_t steps = 0;  // Done before it, of the way through all stages and back
    Op op;
  };
  struct RunsAfter {  // Whether `b` runs before `a`
    bool operator()(const ReadyOp& a, const ReadyOp& b) const {
      if (a.steps != b.steps) return a.steps < b.steps;
      return std::tie(a.op.replica, a.op.micro_batch) > std::tie(b.op.replica, b.op.micro_batch);
    }
  };
  struct Worker {
    bool busy = false;
    bool touched = false;  // Whether an event at the current time affects it
    std::priority_queue<ReadyOp, std::vector<ReadyOp>, RunsAfter> ready;
    std::deque<Op> weights;  // Ready W, oldest first
    std::int64_t held = 0;
  };
  struct Entrance {
    std::vector<MicroBatchId> members;
    std::size_t next = 0;         // Index of the next entry to admit
    std::int64_t on_the_way = 0;  // Admitted, I at stage 0 not ended
  };
  struct Event {
    std::int64_t time = 0;
    bool arrival = false;
    Op op;
  };
  struct ComesLater {
    bool operator()(const Event& a, const Event& b) const { return a.time > b.time; }
  };

  [[nodiscard]] std::size_t worker_of(const Op& op) const {
    return task_.placement.worker(op.replica, op.stage).index();
  }

  void touch(std::size_t w) {
    if (workers_[w].touched) return;
    workers_[w].touched = true;
    touched_.push_back(w);
  }

  void admit(ReplicaId replica) {
    Entrance& entrance = entrances_[replica.index()];
    for (; entrance.next < entrance.members.size() && entrance.on_the_way < task_.admitted; ++entrance.next) {
      ++entrance.on_the_way;
      make_ready({OpKind::Forward, replica, StageId(0), entrance.members[entrance.next]});
    }
  }

  void make_ready(const Op& op) {
    const std::int64_t s = op.stage.value();
    workers_[worker_of(op)].ready.push({op.kind == OpKind::Forward ? s : 2 * stages_ - 1 - s, op});
    touch(worker_of(op));
  }

  void send(std::size_t from, const Op& op) {
    if (task_.latency_ticks == 0 || worker_of(op) == from) return make_ready(op);
    events_.push({now_ + task_.latency_ticks, true, op});
  }

  void end(const Op& op) {
    const std::size_t w = worker_of(op);
    Worker& worker = workers_[w];
    worker.busy = false;
    touch(w);
    Op next = op;
    if (op.kind == OpKind::BackwardWeight) {
      --worker.held;
    } else if (op.kind == OpKind::Forward) {
      const bool last = op.stage.value() + 1 == stages_;
      if (last) next.kind = OpKind::BackwardInput;
      if (!last) next.stage = StageId(op.stage.value() + 1);
      send(w, next);
    } else {
      next.kind = OpKind::BackwardWeight;
      worker.weights.push_back(next);
      if (op.stage == StageId(0)) {
        --entrances_[op.replica.index()].on_the_way;
        return admit(op.replica);
      }
      next = op;
      next.stage = StageId(op.stage.value() - 1);
      send(w, next);
    }
  }

  void begin_touched() {
    for (const std::size_t w : touched_) {
      workers_[w].touched = false;
      if (!workers_[w].busy) begin_next(w);
    }
    touched_.clear();
  }

  void begin_next(std::size_t w) {
    Worker& worker = workers_[w];
    const bool weight_first = worker.ready.empty() || worker.held >= task_.most_held;
    Op op;
    if (weight_first && !worker.weights.empty()) {
      op = worker.weights.front();
      worker.weights.pop_front();
    } else if (!worker.ready.empty()) {
      op = worker.ready.top().op;
      worker.ready.pop();
    } else {
      return;
    }
    if (op.kind == OpKind::Forward) ++worker.held;
    worker.busy = true;
    schedule_.workers[w].push_back(op);
    events_.push({now_ + task_.op_ticks, false, op});
  }

  const DeepestFirstTask& task_;
  std::int64_t stages_;
  std::vector<Entrance> entrances_;  // [replica]
  std::vector<Worker> workers_;
  std::vector<std::size_t> touched_;
  std::priority_queue<Event, std::vector<Event>, ComesLater> events_;  // Earliest first
  std::int64_t now_ = 0;
  Schedule schedule_;
};

}  // namespace

Schedule deepest_first(const DeepestFirstTask& task) { return DeepestFirst(task).run(); }

}  // namespace chimera
