// ContentionTracker counts what runs at the moment, and knows by what factor each activity is slowed down by the
// others. EventClock is the loop over events. The rate of an activity is its share of the cores of its node
// (share_out()), divided by this factor: the share is about cores that are too few, the factor about everything else.

#include "simulate/pipeline_state.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "core/signals.h"
#include "simulate/cost_table.h"
#include "simulate/links.h"
#include "simulate/token_buckets.h"

namespace chimera {
namespace {

struct Running {
  ActivityKind work = ActivityKind::Op;
  std::size_t of = 0;  // worker; of a Message: op; of a Sum: parameter group
  double left = 0;     // remaining time with a core of its own, at `since`
  double demand = 1;   // cores used on each of its workers
  double share = 1;    // fraction of time that it computes
  double since = 0;
  double rate = 0;  // 0: not started
  double finish = kNever;

  void set_rate(double now, double new_rate) {
    // As long as the rate stays, so does the end: without rounding in between, undisturbed activities end at exactly
    // the times that the other clock (OwnCores) computes.
    if (new_rate == rate) return;
    left = std::max(0.0, left - (now - since) * rate);
    since = now;
    rate = new_rate;
    finish = now + left / rate;
  }
};

/// Counts what runs on each worker and each node at the moment, and derives from it by what factor each activity is
/// slower than alone. The clock of shared cores reports every begin and end here.
class ContentionTracker {
 public:
  /// `cores` is the number of cores of each node.
  ContentionTracker(const Contention& contention, std::size_t workers, const NodePlacement& nodes, double cores)
      : contention_(contention), nodes_(nodes), cores_(cores), in_use_(workers), of_nodes_(workers) {}

  void count_op(std::size_t worker, int change) {
    in_use_[worker].ops += change;
    of_nodes_[nodes_.node(worker)].ops += nodes_.copies_of(worker) * change;
  }
  void count_message(std::size_t from, std::size_t to, int change) {
    if (leaves_node(from, to)) {
      // All data-parallel groups send at once. Each copy of the sender has its own receiver, so the receiver's node
      // gets as large a part of the messages as it has of the receivers.
      const int at_once = nodes_.copies_that_send(from, cores_);
      of_nodes_[nodes_.node_of[from]].leaving += at_once * change;
      of_nodes_[nodes_.node_of[to]].coming += std::max(1, nodes_.copies[to] * at_once / nodes_.copies[from]) * change;
      return;
    }
    in_use_[from].leaving += change;
    in_use_[to].coming += change;
  }
  void count_sum(std::span<const WorkerId> workers, std::size_t group, int change) {
    for (const WorkerId worker : workers) {
      InUse& here = in_use_[worker.index()];
      here.sums += change;
      if (leaves_node(group)) continue;
      here.leaving += change;
      here.coming += change;
    }
    if (!leaves_node(group)) return;
    for (std::size_t i = 0; i < workers.size(); ++i) {
      const std::size_t node = nodes_.node_of[workers[i].index()];
      const auto on_it = [&](WorkerId worker) { return nodes_.node_of[worker.index()] == node; };
      if (std::ranges::any_of(workers.first(i), on_it)) continue;  // one transfer per node and all-reduce
      of_nodes_[node].leaving += change;
      of_nodes_[node].coming += change;
    }
  }

  /// Slowdown factors: of an op beside waiting `receives`, a message, an all-reduce.
  [[nodiscard]] double op(std::size_t worker, std::int64_t receives) const {
    const InUse& here = in_use_[worker];
    const double slowed =
        1 + (here.sums > 0 ? contention_.ops_by_sums : 0) + contention_.ops_by_receives * static_cast<double>(receives);
    return slowed * (1 - contention_.idle_gain * idle_share(of_nodes_[nodes_.node(worker)].ops, cores_));
  }
  [[nodiscard]] double message(std::size_t from, std::size_t to) const {
    if (leaves_node(from, to)) {
      const int most = std::max(of_nodes_[nodes_.node_of[from]].leaving, of_nodes_[nodes_.node_of[to]].coming);
      return beside(most, contention_.node_transfers);
    }
    return beside(std::max(in_use_[from].leaving, in_use_[to].coming), contention_.transfers);
  }
  [[nodiscard]] double sum(std::span<const WorkerId> workers, std::size_t group) const {
    double slowest = 1;
    const bool leaves = leaves_node(group);
    const double share = leaves ? contention_.node_transfers : contention_.transfers;
    for (const WorkerId worker : workers) {
      const InUse& there = leaves ? of_nodes_[nodes_.node_of[worker.index()]] : in_use_[worker.index()];
      slowest = std::max(slowest, beside(std::max(there.leaving, there.coming), share) + by_ops(worker.index()));
    }
    return slowest;
  }
  /// Factor on an all-reduce's duration after its workers launched the next.
  [[nodiscard]] double overlap_factor() const { return 1 - contention_.sums_overlap; }

 private:
  struct InUse {
    int ops = 0;
    int sums = 0;
    int leaving = 0;  // messages and all-reduces
    int coming = 0;
  };
  static double beside(int transfers, double share) { return 1 + share * (transfers - 1); }
  [[nodiscard]] double by_ops(std::size_t worker) const {
    return in_use_[worker].ops > 0 ? contention_.sums_by_ops : 0;
  }
  [[nodiscard]] bool knows_nodes() const { return contention_.node_transfers > 0 && !nodes_.node_of.empty(); }
  [[nodiscard]] bool leaves_node(std::size_t from, std::size_t to) const {
    return knows_nodes() && nodes_.node_of[from] != nodes_.node_of[to];
  }
  [[nodiscard]] bool leaves_node(std::size_t group) const { return knows_nodes() && nodes_.sums_leave[group]; }

  Contention contention_;
  const NodePlacement& nodes_;
  double cores_;
  std::vector<InUse> in_use_;    // [worker]
  std::vector<InUse> of_nodes_;  // [node]: ops, and transfers between nodes
};

class EventClock {
 public:
  EventClock(PipelineState& state, const SharedCores& cores)
      : state_(state),
        cores_(cores),
        in_use_(cores.contention, state.num_workers(), cores.nodes, cores.cores),
        demands_(cores.nodes.count()),
        buckets_(std::max(cores.nodes.count(), state.num_workers())) {
    for (std::size_t w = 0; w < state.num_workers(); ++w) workers_.emplace_back(static_cast<std::int64_t>(w));
  }

  void run() {
    for (double now = next_event(); now < kNever; now = next_event()) {
      throw_if_interrupted();
      for (const Running& each : take_finished(now)) finish(each, now);
      for (std::size_t w = 0; w < state_.num_workers(); ++w) {
        // The end of a step's ops takes no time, so more can begin at the same instant.
        while (state_.ready(w) <= now) begin_next(w, now);
      }
      for (const auto& [group, start] : state_.sums().begin_ready()) begin_sum(group, start);
      share_out(now);
    }
  }

 private:
  /// Looks at all workers and activities. There are few at a time, and a queue would have to be rebuilt after each
  /// change of rates.
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

  /// Counters change before the state, so that activities which begin as a consequence see the resource as free.
  void finish(const Running& each, double now) {
    count(each, -1);
    for_each_sender(each, [&](std::size_t w) { buckets_.end(interface(w), now); });
    if (each.work == ActivityKind::Sum) {
      state_.end_sum(ParameterGroupId(static_cast<std::int64_t>(each.of)), now);
    } else if (each.work == ActivityKind::Message) {
      end_message(static_cast<OpIndex>(each.of), now);
    } else {
      state_.finish(each.work, each.of, now,
                    [this](OpIndex made, std::size_t to, double ready) { return send(made, to, ready); });
    }
  }

  void begin_next(std::size_t w, double now) {
    const std::optional<Activity> next = state_.begin_next(w, now);
    if (!next) return;
    const double share = next->work == ActivityKind::OwnSum ? cores_.all_reduce_share : 1;
    // A pair of ops takes less time than both in order, but does the same work: it keeps more than one core busy.
    double demand = share;
    if (next->work == ActivityKind::Op && next->time > 0) demand = work_of_ops(w) / next->time;
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
    begin({.work = ActivityKind::Sum,
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
    begin({.work = ActivityKind::Message,
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
      if (each.work != ActivityKind::Message) buckets_.empty(interface(w));
    });
  }

  /// Without contention a message's arrival is known at once. With it, the message becomes an activity whose end comes
  /// later.
  double send(OpIndex made, std::size_t to, double now) {
    const std::size_t from = table_.worker(made);
    if (contends_ && costs_.link_time(table_.op(made)) > 0) {
      std::deque<OpIndex>& queue = queues_[{from, to}];
      queue.push_back(made);
      if (queue.size() == 1) begin_message(made, now);
      return kNever;
    }
    return links_.send(from, to, table_.op(made), now).arrived;
  }

  void end_message(OpIndex made, double now) {
    const std::size_t from = table_.worker(made);
    const std::size_t to = consuming_worker(made);
    state_.arrive(made, now);
    std::deque<OpIndex>& queue = queues_.at({from, to});
    queue.pop_front();
    if (!queue.empty()) begin_message(queue.front(), now);
  }

  std::size_t consuming_worker(OpIndex op) const { return table_.worker(table_.consumer(table_.op(op))); }

  /// The node with most demand for its cores decides on an activity's rate.
  void share_out(double now) {
    std::ranges::fill(demands_, 0.0);
    for (const Running& each : running_)
      for_each_node(each, [this](std::size_t node, double cores) { demands_[node] += cores; });
    for (Running& each : running_) {
      double rate = 1;
      for_each_node(each, [&](std::size_t node, double) {
        if (demands_[node] > cores_.cores)
          rate = std::min(rate, cores_.cores / demands_[node] / (1 + cores_.switching));
      });
      const double computed = rate == 1 || each.share == 0 ? 1 : 1 / (1 - each.share + each.share / rate);
      each.set_rate(now, computed / (contends_ ? slowdown(each, now) : 1.0));
    }
  }

  /// Calls `use(node, cores)` per worker with the demand of all copies of the activity on the node.
  template <class Use>
  void for_each_node(const Running& each, const Use& use) const {
    if (each.demand == 0) return;
    for (const WorkerId worker : members(each))
      use(cores_.nodes.node(worker.index()), cores_.nodes.copies_of(worker.index()) * each.demand);
  }

  /// Calls `act(worker)` for the workers that use up their interface's burst.
  template <class Act>
  void for_each_sender(const Running& each, const Act& act) const {
    if (each.work == ActivityKind::OwnSum) act(each.of);
    if (each.work == ActivityKind::Message) {
      const auto op = static_cast<OpIndex>(each.of);
      if (costs_.burst(table_.op(op)) > 0) act(table_.worker(op));
    }
    if (each.work != ActivityKind::Sum) return;
    if (!cores_.nodes.sums_leave.empty() && !cores_.nodes.sums_leave[each.of]) return;
    for (const WorkerId worker : members(each)) act(worker.index());
  }

  /// Returns the workers of an activity other than a message.
  std::span<const WorkerId> members(const Running& each) const {
    if (each.work != ActivityKind::Sum) return std::span(workers_).subspan(each.of, 1);
    return state_.sums().holders(ParameterGroupId(static_cast<std::int64_t>(each.of)));
  }

  static bool is_all_reduce(const Running& each) {
    return each.work == ActivityKind::Sum || each.work == ActivityKind::OwnSum;
  }

  std::size_t group_of(const Running& all_reduce) const {
    return all_reduce.work == ActivityKind::Sum ? all_reduce.of : state_.updated_stage(all_reduce.of).index();
  }

  /// Network interface of the worker's node, or its own if nodes are unknown.
  std::size_t interface(std::size_t w) const { return cores_.nodes.node_of.empty() ? w : cores_.nodes.node(w); }

  void count(const Running& each, int change) {
    if (each.work == ActivityKind::Message) {
      const auto op = static_cast<OpIndex>(each.of);
      in_use_.count_message(table_.worker(op), consuming_worker(op), change);
    } else if (is_all_reduce(each)) {
      in_use_.count_sum(members(each), group_of(each), change);
    } else {
      in_use_.count_op(each.of, change);
    }
  }

  /// An all-reduce is faster while all its workers have launched the next: one sends while the other adds.
  double slowdown(const Running& each, double now) const {
    if (each.work == ActivityKind::Message) {
      const auto op = static_cast<OpIndex>(each.of);
      return in_use_.message(table_.worker(op), consuming_worker(op));
    }
    if (each.work == ActivityKind::Op) return in_use_.op(each.of, state_.awaited_inputs(each.of, now));
    if (!is_all_reduce(each)) return in_use_.op(each.of, 0);
    const double slowest = in_use_.sum(members(each), group_of(each));
    const bool overlaps =
        each.work == ActivityKind::Sum && state_.sums().has_next(ParameterGroupId(static_cast<std::int64_t>(each.of)));
    return overlaps ? slowest * in_use_.overlap_factor() : slowest;
  }

  PipelineState& state_;
  const OpTable& table_ = state_.table();
  const CostTable& costs_ = state_.costs();
  const SharedCores& cores_;
  bool contends_ = cores_.contention.any();
  std::vector<WorkerId> workers_;
  std::vector<Running> running_;
  ContentionTracker in_use_;
  std::vector<double> demands_;  // [node]: cores that activities want
  Links links_{costs_};
  /// Messages by (from, to); the first is in transit. They replace links_ if there is contention, because the speed of
  /// a message then changes in transit.
  std::map<std::pair<std::size_t, std::size_t>, std::deque<OpIndex>> queues_;
  TokenBuckets buckets_;  // burst allowance of each network interface
};

}  // namespace

void run_on_shared_cores(PipelineState& state, const SharedCores& cores) { EventClock(state, cores).run(); }

}  // namespace chimera
