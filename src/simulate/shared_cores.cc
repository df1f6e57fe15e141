#include "simulate/shared_cores.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/signals.h"
#include "simulate/contention_tracker.h"
#include "simulate/links.h"
#include "simulate/token_buckets.h"

namespace chimera {
namespace {

struct Running {
  Work work = Work::Op;
  std::size_t of = 0;  // worker; of a Message: op; of a Sum: parameter group
  double left = 0;     // remaining time with a core of its own, at `since`
  double demand = 1;   // cores used on each of its workers
  double share = 1;    // fraction of time that it computes
  double since = 0;
  double rate = 0;  // 0: not started
  double finish = kNever;

  void set_rate(double now, double new_rate) {
    if (new_rate == rate) return;
    left = std::max(0.0, left - (now - since) * rate);
    since = now;
    rate = new_rate;
    finish = now + left / rate;
  }
};

/// Links like Links (links.h), for messages whose speed changes in transit.
class LinkQueues {
 public:
  [[nodiscard]] bool push(std::size_t from, std::size_t to, OpIndex made) {
    std::deque<OpIndex>& queue = queues_[key(from, to)];
    queue.push_back(made);
    return queue.size() == 1;
  }
  [[nodiscard]] std::optional<OpIndex> pop(std::size_t from, std::size_t to) {
    std::deque<OpIndex>& queue = queues_.at(key(from, to));
    queue.pop_front();
    return queue.empty() ? std::nullopt : std::optional(queue.front());
  }

 private:
  static std::uint64_t key(std::size_t from, std::size_t to) { return (static_cast<std::uint64_t>(from) << 32) | to; }

  std::unordered_map<std::uint64_t, std::deque<OpIndex>> queues_;  // (from, to): the first is in transit
};

class EventClock {
 public:
  EventClock(PipelineState& state, const SharedCores& cores)
      : state_(state),
        table_(state.table()),
        costs_(state.costs()),
        cores_(cores),
        contends_(cores.contention.any()),
        in_use_(cores.contention, state.num_workers(), cores.nodes, cores.cores),
        demands_(cores.nodes.count()),
        links_(state.costs()),
        buckets_(std::max(cores.nodes.count(), state.num_workers())) {}

  void run() {
    if (contends_) expect_messages();
    for (double now = next_event(); now < kNever; now = next_event()) {
      throw_if_interrupted();
      for (const Running& each : take_finished(now)) finish(each, now);
      for (std::size_t w = 0; w < state_.num_workers(); ++w) {
        while (state_.ready(w) <= now) begin_next(w, now);
      }
      for (const auto& [group, start] : state_.sums().begin_ready()) begin_sum(group, start);
      share_out(now);
    }
  }

 private:
  double next_event() const {
    double next = kNever;
    for (const Running& each : running_) next = std::min(next, each.finish);
    for (std::size_t w = 0; w < state_.num_workers(); ++w) next = std::min(next, state_.ready(w));
    return next;
  }

  std::vector<Running> take_finished(double now) {
    const auto done =
        std::stable_partition(running_.begin(), running_.end(), [&](const Running& each) { return each.finish > now; });
    std::vector<Running> finished(done, running_.end());
    running_.erase(done, running_.end());
    return finished;
  }

  void finish(const Running& each, double now) {
    count(each, -1);
    for_each_sender(each, [&](std::size_t w) { buckets_.end(interface(w), now); });
    if (each.work == Work::Sum) {
      state_.end_sum(ParameterGroupId(static_cast<std::int64_t>(each.of)), now);
    } else if (each.work == Work::Message) {
      end_message(static_cast<OpIndex>(each.of), now);
    } else {
      state_.finish(each.work, each.of, now,
                    [this](OpIndex made, std::size_t to, double ready) { return send(made, to, ready); });
    }
  }

  void begin_next(std::size_t w, double now) {
    const std::optional<Activity> next = state_.begin_next(w, now);
    if (!next) return;
    const double share = next->work == Work::OwnSum ? cores_.all_reduce_share : 1;
    double demand = share;
    if (next->work == Work::Op && next->time > 0) demand = work_of_ops(w) / next->time;
    begin({.work = next->work, .of = w, .left = next->time, .demand = demand, .share = share, .since = now});
  }

  /// A pair does the work of both ops in less time on more cores.
  double work_of_ops(std::size_t w) const {
    const auto ops = state_.next_ops(w);
    double work = -costs_.recomputation(ops);
    for (const Op& op : ops) work += costs_.duration(op);
    return work;
  }

  void begin_sum(ParameterGroupId group, double now) {
    begin({.work = Work::Sum,
           .of = group.index(),
           .left = costs_.all_reduce(group),
           .demand = cores_.all_reduce_share,
           .share = cores_.all_reduce_share,
           .since = now});
  }

  void begin_message(OpIndex made, double now) {
    const Op& op = table_.op(made);
    const std::size_t from = table_.worker(made);
    double time = costs_.link_time(op);
    if (costs_.burst(op) > 0) {
      time -= buckets_.take(interface(from), now, time, costs_.burst(op),
                            cores_.nodes.copies_that_send(from, cores_.cores));
    }
    begin({.work = Work::Message,
           .of = static_cast<std::size_t>(made),
           .left = time,
           .demand = 0,
           .share = 0,
           .since = now});
  }

  void begin(const Running& each) {
    running_.push_back(each);
    count(each, 1);
    for_each_sender(each, [&](std::size_t w) {
      buckets_.begin(interface(w), each.since);
      if (each.work != Work::Message) buckets_.empty(interface(w));
    });
  }

  double send(OpIndex made, std::size_t to, double now) {
    const std::size_t from = table_.worker(made);
    if (contends_ && costs_.link_time(table_.op(made)) > 0) {
      if (queues_.push(from, to, made)) begin_message(made, now);
      return kNever;
    }
    if (contends_) in_use_.count_arrival(from, to);
    return links_.send(from, to, table_.op(made), now).arrived;
  }

  void end_message(OpIndex made, double now) {
    const std::size_t from = table_.worker(made);
    const std::size_t to = consuming_worker(made);
    state_.arrive(made, now);
    in_use_.count_arrival(from, to);
    if (const std::optional<OpIndex> next = queues_.pop(from, to)) begin_message(*next, now);
  }

  void expect_messages() {
    for (OpIndex op = 0; op < table_.size(); ++op) {
      if (table_.consumer(table_.op(op)) == kNoOp || consuming_worker(op) == table_.worker(op)) continue;
      in_use_.expect_message(table_.worker(op), consuming_worker(op));
    }
  }

  std::size_t consuming_worker(OpIndex op) const { return table_.worker(table_.consumer(table_.op(op))); }

  /// The node with most demand for its cores decides on an activity's rate.
  void share_out(double now) {
    std::ranges::fill(demands_, 0.0);
    for (const Running& each : running_) {
      for_each_node(each, [this](std::size_t node, double cores) { demands_[node] += cores; });
    }
    for (Running& each : running_) {
      double rate = 1;
      for_each_node(each, [&](std::size_t node, double) {
        if (demands_[node] > cores_.cores)
          rate = std::min(rate, cores_.cores / demands_[node] / (1 + cores_.switching));
      });
      const double computed = rate == 1 || each.share == 0 ? 1 : 1 / (1 - each.share + each.share / rate);
      each.set_rate(now, computed / (contends_ ? slowdown(each) : 1.0));
    }
  }

  /// Calls `use(node, cores)` per worker with the demand of all copies of the activity on the node.
  template <class Use>
  void for_each_node(const Running& each, const Use& use) const {
    if (each.demand == 0) return;
    const auto on = [&](std::size_t w) { use(cores_.nodes.node(w), cores_.nodes.copies_of(w) * each.demand); };
    if (each.work != Work::Sum) return on(each.of);
    for (const WorkerId worker : holders(each)) on(worker.index());
  }

  /// Calls `act(worker)` for the workers that use up their interface's burst.
  template <class Act>
  void for_each_sender(const Running& each, const Act& act) const {
    if (each.work == Work::OwnSum) act(each.of);
    if (each.work == Work::Message) {
      const auto op = static_cast<OpIndex>(each.of);
      if (costs_.burst(table_.op(op)) > 0) act(table_.worker(op));
    }
    if (each.work != Work::Sum) return;
    if (!cores_.nodes.sums_leave.empty() && !cores_.nodes.sums_leave[each.of]) return;
    for (const WorkerId worker : holders(each)) act(worker.index());
  }

  const std::vector<WorkerId>& holders(const Running& sum) const {
    return state_.sums().holders(ParameterGroupId(static_cast<std::int64_t>(sum.of)));
  }

  /// Network interface of the worker's node, or its own if nodes are unknown.
  std::size_t interface(std::size_t w) const { return cores_.nodes.node_of.empty() ? w : cores_.nodes.node(w); }

  void count(const Running& each, int change) {
    if (each.work == Work::Message) {
      const auto op = static_cast<OpIndex>(each.of);
      in_use_.count_message(table_.worker(op), consuming_worker(op), change);
    } else if (each.work == Work::Sum) {
      in_use_.count_sum(holders(each), each.of, change);
    } else if (each.work == Work::OwnSum) {
      in_use_.count_own_sum(each.of, state_.updated_stage(each.of).index(), change);
    } else {
      in_use_.count_op(each.of, change);
    }
  }

  double slowdown(const Running& each) const {
    if (each.work == Work::Message) {
      const auto op = static_cast<OpIndex>(each.of);
      return in_use_.message(table_.worker(op), consuming_worker(op));
    }
    if (each.work == Work::OwnSum) return in_use_.own_sum(each.of, state_.updated_stage(each.of).index());
    if (each.work != Work::Sum) return in_use_.op(each.of);
    const double slowest = in_use_.sum(holders(each), each.of);
    const bool overlaps = state_.sums().has_next(ParameterGroupId(static_cast<std::int64_t>(each.of)));
    return overlaps ? slowest * in_use_.overlap_factor() : slowest;
  }

  PipelineState& state_;
  const OpTable& table_;
  const CostTable& costs_;
  const SharedCores& cores_;
  bool contends_;
  std::vector<Running> running_;
  ContentionTracker in_use_;
  std::vector<double> demands_;  // [node]: cores that activities want
  Links links_;
  LinkQueues queues_;     // replaces links_ if there is contention
  TokenBuckets buckets_;  // burst allowance of each network interface
};

}  // namespace

void run_on_shared_cores(PipelineState& state, const SharedCores& cores) { EventClock(state, cores).run(); }

}  // namespace chimera
