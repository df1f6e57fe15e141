#include "simulate/shared_cores.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/signals.h"
#include "schedule/dependencies.h"
#include "simulate/copy_engines.h"
#include "simulate/links.h"
#include "simulate/lower_bound.h"
#include "simulate/memory.h"
#include "simulate/steps.h"
#include "simulate/sum_lanes.h"
#include "simulate/summary.h"
#include "simulate/token_buckets.h"

namespace chimera {

inline constexpr double kNever = std::numeric_limits<double>::infinity();

enum class Work : std::uint8_t { Recomputation, Op, Message, Sum, OwnSum, Update };

struct Activity {
  Work kind = Work::Op;
  std::size_t of = 0;  // worker; of a Message: op; of a Sum: parameter group
  double left = 0;     // remaining time with a core of its own, at `since`
  double demand = 1;   // cores used on each of its workers
  double share = 1;    // fraction of time that it computes
  double since = 0;
  double rate = 0;  // 0: not started
  double finish = kNever;

  void go_on(double now, double new_rate) {
    if (new_rate == rate) return;
    left = std::max(0.0, left - (now - since) * rate);
    since = now;
    rate = new_rate;
    finish = now + left / rate;
  }
};

class Activities {
 public:
  explicit Activities(const SharedCores& cores)
      : cores_(cores.cores), slowed_(1 + cores.switching), demands_(cores.nodes.count()) {}

  void begin(const Activity& activity) { running_.push_back(activity); }

  [[nodiscard]] double next_finish() const {
    double next = kNever;
    for (const Activity& activity : running_) next = std::min(next, activity.finish);
    return next;
  }

  [[nodiscard]] std::vector<Activity> finished(double now) {
    const auto done = std::stable_partition(running_.begin(), running_.end(),
                                            [&](const Activity& activity) { return activity.finish > now; });
    std::vector<Activity> result(done, running_.end());
    running_.erase(done, running_.end());
    return result;
  }

  /// `for_each_node(activity, use)` calls `use(node, cores)` with the activity's demand; the busiest node decides.
  /// `slowdown(activity)` is the factor from contention.
  template <typename ForEachNode, typename Slowdown>
  void share_out(double now, const ForEachNode& for_each_node, const Slowdown& slowdown) {
    std::ranges::fill(demands_, 0.0);
    for (const Activity& activity : running_) {
      for_each_node(activity, [this](std::size_t node, double cores) { demands_[node] += cores; });
    }
    for (Activity& activity : running_) {
      double rate = 1;
      for_each_node(activity, [&](std::size_t node, double) {
        if (demands_[node] > cores_) rate = std::min(rate, cores_ / demands_[node] / slowed_);
      });
      const double share = activity.share;
      activity.go_on(now, (rate == 1 || share == 0 ? 1 : 1 / (1 - share + share / rate)) / slowdown(activity));
    }
  }

 private:
  double cores_;
  double slowed_;                // factor on times while a node has more demand than cores
  std::vector<double> demands_;  // [node]
  std::vector<Activity> running_;
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

struct RunningWorker {
  std::size_t step = 0;
  std::size_t position = 0;  // position of its next op
  double free = 0;           // when it became idle
  bool busy = false;
  std::size_t sending = 0;                                 // blocking messages with unknown arrival
  double sent = 0;                                         // latest known arrival of a blocking message
  std::size_t launched = 0;                                // all-reduces of this step
  bool ended_ops = false;                                  // whether the ops of this step have ended
  std::optional<std::size_t> update_after = std::nullopt;  // asynchronous: op with a pending update
  double update_start = 0;
  std::optional<double> recomputed = std::nullopt;  // start of the next op's recomputation
};

class CoresRun {
 public:
  CoresRun(const Schedule& schedule, const std::vector<std::vector<StepRange>>& ranges, const CostTable& costs,
           const SharedCores& cores, const Launches& launches, Timeline& timeline)
      : schedule_(schedule),
        table_(schedule),
        ranges_(ranges),
        costs_(costs),
        launches_(launches),
        timeline_(timeline),
        activities_(cores),
        sums_(schedule, costs, timeline),
        groups_(gradient_groups(schedule.placement, costs.sums().tied)),
        all_reduce_share_(cores.all_reduce_share),
        cores_(cores.cores),
        links_(costs),
        contends_(cores.contention.any()),
        in_use_(cores.contention, schedule.workers.size(), cores.nodes, cores.cores),
        nodes_(cores.nodes),
        buckets_(std::max(cores.nodes.count(), schedule.workers.size())),
        update_times_(costs.updates(schedule)),
        updates_(schedule),
        copies_(schedule, costs),
        workers_(schedule.workers.size()),
        arrived_(table_.size(), kNever) {}

  void run() {
    if (!schedule_.updates) timeline_.step_ends.assign(ranges_.size(), 0);
    if (contends_) expect_messages();
    for (std::size_t w = 0; w < workers_.size(); ++w) begin_step(w);
    for (double now = next_event(); now < kNever; now = next_event()) {
      throw_if_interrupted();
      for (const Activity& activity : activities_.finished(now)) finish(activity, now);
      for (std::size_t w = 0; w < workers_.size(); ++w) {
        while (ready(w) <= now) begin_next(w, now);
      }
      for (const auto& [group, start] : sums_.begin_ready()) begin_sum(group, start);
      activities_.share_out(
          now, [this](const Activity& activity, const auto& use) { for_each_node(activity, use); },
          [this](const Activity& activity) { return contends_ ? slowdown(activity) : 1.0; });
    }
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      if (workers_[w].position < schedule_.workers[w].size()) throw_stuck(schedule_);
    }
  }

 private:
  using Worker = RunningWorker;

  bool synchronous() const { return !schedule_.updates; }

  double next_event() const {
    double next = activities_.next_finish();
    for (std::size_t w = 0; w < workers_.size(); ++w) next = std::min(next, ready(w));
    return next;
  }

  double ready(std::size_t w) const {
    const Worker& worker = workers_[w];
    if (worker.busy || worker.step == ranges_.size()) return kNever;
    if (worker.update_after) return worker.free;
    if (worker.position < ranges_[worker.step][w].end) return op_ready(w);
    if (!synchronous()) return kNever;
    if (!worker.ended_ops) return worker.free;
    return worker.step < steps_summed_ ? all_summed_ : kNever;
  }

  std::span<const Op> next_ops(std::size_t w) const {
    return concurrent_ops(schedule_.workers[w], workers_[w].position, costs_.pairs());
  }

  bool recomputes_first(std::size_t w) const {
    return !workers_[w].recomputed && costs_.recomputation(next_ops(w)) > 0;
  }

  double op_ready(std::size_t w) const {
    const std::size_t position = workers_[w].position;
    double start = std::max(workers_[w].free, copies_.loaded(w, position, position + next_ops(w).size()));
    if (recomputes_first(w)) return start;
    for (const Op& op : next_ops(w)) {
      for (const OpIndex input : table_.inputs(op)) {
        if (input != kNoOp) start = std::max(start, arrival(input, w));
      }
    }
    return start;
  }

  double arrival(OpIndex made, std::size_t w) const {
    const std::size_t maker = table_.worker(made);
    if (maker != w) return arrived_[made];
    const std::size_t position = made - table_.first(w);
    return position < workers_[w].position ? timeline_.workers[w].ops[position].end : kNever;
  }

  void begin_next(std::size_t w, double now) {
    Worker& worker = workers_[w];
    if (worker.update_after) {
      begin_own_update(w, now);
    } else if (worker.position < ranges_[worker.step][w].end) {
      recomputes_first(w) ? begin_recomputation(w, now) : begin_op(w, now);
    } else if (!worker.ended_ops) {
      worker.ended_ops = true;
      launch(w, now);
      end_sums(w);
    } else {
      timeline_.workers[w].updates.push_back({worker.position, now, now});
      begin(w, Work::Update, update_times_[w], now);
    }
  }

  void begin_recomputation(std::size_t w, double now) {
    workers_[w].recomputed = now;
    begin(w, Work::Recomputation, costs_.recomputation(next_ops(w)), now);
  }

  /// In the timeline, an op starts with its recomputation, as late as possible.
  void begin_op(std::size_t w, double now) {
    const Worker& worker = workers_[w];
    const auto ops = next_ops(w);
    const double again = costs_.recomputation(ops);
    double start = now;
    if (worker.recomputed) start = now > worker.free ? std::max(*worker.recomputed, now - again) : *worker.recomputed;
    double in_order = -again;
    for (std::size_t k = 0; k < ops.size(); ++k) {
      timeline_.workers[w].ops[worker.position + k].start = start;
      in_order += costs_.duration(ops[k]);
    }
    // A pair does the work of both ops in less time on more cores.
    const double time = costs_.duration(ops) - again;
    begin(w, Work::Op, time, now, 1, time > 0 ? in_order / time : 1);
  }

  void begin(std::size_t w, Work kind, double time, double now, double share = 1, double cores = 1) {
    workers_[w].busy = true;
    begin({.kind = kind, .of = w, .left = time, .demand = share * cores, .share = share, .since = now});
  }

  void begin(const Activity& activity) {
    activities_.begin(activity);
    count(activity, 1);
    for_each_sender(activity, [&](std::size_t w) {
      buckets_.begin(interface(w), activity.since);
      if (activity.kind != Work::Message) buckets_.empty(interface(w));
    });
  }

  /// Network interface of the worker's node, or its own if nodes are unknown.
  [[nodiscard]] std::size_t interface(std::size_t w) const { return nodes_.node_of.empty() ? w : nodes_.node(w); }

  template <class Act>
  void for_each_sender(const Activity& activity, const Act& act) const {
    if (activity.kind == Work::OwnSum) act(activity.of);
    if (activity.kind == Work::Message) {
      const auto op = static_cast<OpIndex>(activity.of);
      if (costs_.burst(table_.op(op)) > 0) act(table_.worker(op));
    }
    if (activity.kind != Work::Sum) return;
    if (!nodes_.sums_leave.empty() && !nodes_.sums_leave[activity.of]) return;
    for (const WorkerId worker : groups_[activity.of]) act(worker.index());
  }

  void count(const Activity& activity, int change) {
    if (activity.kind == Work::Message) {
      const auto op = static_cast<OpIndex>(activity.of);
      in_use_.count_message(table_.worker(op), consuming_worker(op), change);
    } else if (activity.kind == Work::Sum) {
      in_use_.count_sum(groups_[activity.of], activity.of, change);
    } else if (activity.kind == Work::OwnSum) {
      in_use_.count_own_sum(activity.of, own_group(activity.of), change);
    } else {
      in_use_.count_op(activity.of, change);
    }
  }

  /// Calls `use(node, cores)` per worker with the demand of all copies of the activity on the node.
  template <class Use>
  void for_each_node(const Activity& activity, const Use& use) const {
    if (activity.demand == 0) return;
    const auto on = [&](std::size_t w) { use(nodes_.node(w), nodes_.copies_of(w) * activity.demand); };
    if (activity.kind != Work::Sum) return on(activity.of);
    for (const WorkerId worker : groups_[activity.of]) on(worker.index());
  }

  double slowdown(const Activity& activity) const {
    if (activity.kind == Work::Message) {
      const auto op = static_cast<OpIndex>(activity.of);
      return in_use_.message(table_.worker(op), consuming_worker(op));
    }
    if (activity.kind == Work::OwnSum) return in_use_.own_sum(activity.of, own_group(activity.of));
    if (activity.kind != Work::Sum) return in_use_.op(activity.of);
    const double slowest = in_use_.sum(groups_[activity.of], activity.of);
    const ParameterGroupId group(static_cast<std::int64_t>(activity.of));
    return sums_.has_next(group) ? slowest * in_use_.overlap_factor() : slowest;
  }

  void expect_messages() {
    for (OpIndex op = 0; op < table_.size(); ++op) {
      if (table_.consumer(table_.op(op)) == kNoOp || consuming_worker(op) == table_.worker(op)) continue;
      in_use_.expect_message(table_.worker(op), consuming_worker(op));
    }
  }

  std::size_t consuming_worker(OpIndex op) const { return table_.worker(table_.consumer(table_.op(op))); }

  void finish(const Activity& activity, double now) {
    count(activity, -1);
    for_each_sender(activity, [&](std::size_t w) { buckets_.end(interface(w), now); });
    if (activity.kind == Work::Sum) return end_sum(ParameterGroupId(static_cast<std::int64_t>(activity.of)), now);
    if (activity.kind == Work::Message) return end_message(static_cast<OpIndex>(activity.of), now);
    Worker& worker = workers_[activity.of];
    worker.busy = false;
    worker.free = now;
    if (activity.kind == Work::Op) finish_op(activity.of, now);
    if (activity.kind == Work::OwnSum) begin_optimizer(activity.of, now);
    if (activity.kind == Work::Update) finish_update(activity.of, now);
  }

  void finish_op(std::size_t w, double now) {
    Worker& worker = workers_[w];
    const auto ops = next_ops(w);
    worker.recomputed.reset();
    worker.free = copies_.end_ops(w, worker.position, worker.position + ops.size(), now);
    for (const Op& op : ops) {
      const std::size_t position = worker.position++;
      timeline_.workers[w].ops[position].end = now;
      send(static_cast<OpIndex>(table_.first(w) + position), op, w, now);
      if (updates_.completes_update(op)) worker.update_after = position;
    }
    if (worker.position < ranges_[worker.step][w].end) launch(w, now);
  }

  void launch(std::size_t w, double now) {
    if (launches_.empty()) return;
    Worker& worker = workers_[w];
    const auto& launches = launches_[worker.step][w];
    const std::size_t begin = ranges_[worker.step][w].begin;
    for (; worker.launched < launches.size(); ++worker.launched) {
      const auto& [group, after] = launches[worker.launched];
      const std::size_t ops_before = begin + static_cast<std::size_t>(after + 1);
      if (ops_before > worker.position) return;
      sums_.launch(w, group, now, ops_before);
    }
  }

  void end_sum(ParameterGroupId group, double now) {
    sums_.end(group, now);
    for (const WorkerId worker : groups_[group.index()]) end_sums(worker.index());
  }

  void end_sums(std::size_t w) {
    const Worker& worker = workers_[w];
    if (!worker.ended_ops || !sums_.is_free(w)) return;
    last_summed_ = std::max({last_summed_, worker.free, sums_.free_since(w)});
    if (++workers_summed_ < workers_.size()) return;
    workers_summed_ = 0;
    ++steps_summed_;
    all_summed_ = last_summed_;
  }

  void begin_sum(ParameterGroupId group, double now) {
    begin({.kind = Work::Sum,
           .of = group.index(),
           .left = costs_.all_reduce(group),
           .demand = all_reduce_share_,
           .share = all_reduce_share_,
           .since = now});
  }

  void begin_message(OpIndex made, double now) {
    const Op& op = table_.op(made);
    const std::size_t from = table_.worker(made);
    double time = costs_.link_time(op);
    if (costs_.burst(op) > 0) {
      time -= buckets_.take(interface(from), now, time, costs_.burst(op), nodes_.copies_that_send(from, cores_));
    }
    begin({.kind = Work::Message,
           .of = static_cast<std::size_t>(made),
           .left = time,
           .demand = 0,
           .share = 0,
           .since = now});
  }

  void end_message(OpIndex made, double now) {
    const std::size_t from = table_.worker(made);
    Worker& sender = workers_[from];
    arrived_[made] = now + costs_.delay(table_.op(made));
    sender.sent = std::max(sender.sent, arrived_[made]);
    if (costs_.blocking_sends() && --sender.sending == 0) sender.free = sender.sent;
    in_use_.count_arrival(from, consuming_worker(made));
    const std::optional<OpIndex> next = queues_.pop(from, consuming_worker(made));
    if (next) begin_message(*next, now);
  }

  void send(OpIndex index, const Op& op, std::size_t w, double now) {
    const OpIndex consumer = table_.consumer(op);
    if (consumer == kNoOp) return;
    arrived_[index] = now + costs_.delay(op);  // for an op on another worker than its placement says
    if (table_.worker(consumer) == w) return;
    if (contends_ && costs_.link_time(op) > 0) {
      arrived_[index] = kNever;
      if (costs_.blocking_sends()) {
        workers_[w].free = kNever;
        ++workers_[w].sending;
      }
      if (queues_.push(w, table_.worker(consumer), index)) begin_message(index, now);
      return;
    }
    if (contends_) in_use_.count_arrival(w, table_.worker(consumer));
    arrived_[index] = links_.send(w, table_.worker(consumer), op, now).arrived;
    if (costs_.blocking_sends()) workers_[w].free = std::max(workers_[w].free, arrived_[index]);
  }

  void begin_step(std::size_t w) {
    Worker& worker = workers_[w];
    worker.launched = 0;
    worker.ended_ops = false;
    const StepRange& range = ranges_[worker.step][w];
    if (range.begin < range.end) launch(w, worker.free);
  }

  std::size_t own_group(std::size_t w) const {
    return parameters_of(schedule_.workers[w][*workers_[w].update_after].stage).index();
  }

  void begin_own_update(std::size_t w, double now) {
    const ParameterGroupId group(static_cast<std::int64_t>(own_group(w)));
    workers_[w].update_start = now;
    begin(w, Work::OwnSum, costs_.all_reduce(group), now, all_reduce_share_);
  }

  void begin_optimizer(std::size_t w, double now) {
    const Place place{w, *workers_[w].update_after};
    const StageId stage = schedule_.workers[w][place.position].stage;
    const double start = workers_[w].update_start;
    const std::size_t after = place.position + 1;
    if (now > start) timeline_.workers[w].all_reduces.push_back({parameters_of(stage), start, now, place, after});
    timeline_.workers[w].updates.push_back({after, start, now});
    begin(w, Work::Update, costs_.optimizer(stage), now);
  }

  void finish_update(std::size_t w, double now) {
    Worker& worker = workers_[w];
    timeline_.workers[w].updates.back().end = now;
    if (worker.update_after) {
      worker.update_after.reset();
      return;
    }
    timeline_.step_ends[worker.step] = std::max(timeline_.step_ends[worker.step], now);
    if (++worker.step < ranges_.size()) begin_step(w);
  }

  const Schedule& schedule_;
  OpTable table_;
  const std::vector<std::vector<StepRange>>& ranges_;  // [step][worker]
  const CostTable& costs_;
  const Launches& launches_;
  Timeline& timeline_;
  Activities activities_;
  SumLanes sums_;
  std::vector<std::vector<WorkerId>> groups_;  // [parameter group]: holders
  double all_reduce_share_;
  double cores_;  // cores of each node
  Links links_;
  LinkQueues queues_;  // replaces links_ if there is contention
  bool contends_;
  ContentionTracker in_use_;
  const NodePlacement& nodes_;
  TokenBuckets buckets_;              // burst allowance of each network interface
  std::vector<double> update_times_;  // [worker], at the end of a synchronous step
  UpdateCounter updates_;
  CopyEngines copies_;
  std::vector<Worker> workers_;
  std::size_t workers_summed_ = 0;  // finished the current step's ops and all-reduces
  double last_summed_ = 0;          // end of the last of them
  std::size_t steps_summed_ = 0;    // steps whose ops and all-reduces all workers finished
  double all_summed_ = 0;           // end of the last of these steps
  std::vector<double> arrived_;     // [op]: arrival at another worker; kNever: unknown
};

namespace {

void require_valid(const SharedCores& cores) {
  if (!(cores.cores > 0)) throw ConfigError(fmt::format("cores: {} is not a number above 0", cores.cores));
  if (!(cores.all_reduce_share >= 0 && cores.all_reduce_share <= 1))
    throw ConfigError(fmt::format("computing share of all-reduces: {} is not in [0, 1]", cores.all_reduce_share));
  if (!(std::isfinite(cores.switching) && cores.switching >= 0))
    throw ConfigError(fmt::format("cost of switching: {} is not a finite number of 0 or more", cores.switching));
  require_valid(cores.contention);
}

}  // namespace

Timeline simulate_on_cores(const Schedule& schedule, const CostModel& costs, const SharedCores& cores) {
  return simulate_steps_on_cores(schedule, 1, costs, cores);
}

Timeline simulate_steps_on_cores(const Schedule& unrolled, std::int64_t steps, const CostModel& costs,
                                 const SharedCores& cores) {
  require_valid(cores);
  const CostTable table(unrolled, costs);
  std::vector<std::vector<StepRange>> ranges = {whole_range(unrolled)};
  if (!unrolled.updates) ranges = step_ranges(unrolled, steps);
  Timeline timeline = empty_timeline(unrolled);
  CoresRun(unrolled, ranges, table, cores, launches_of_steps(unrolled, ranges, table), timeline).run();
  if (unrolled.updates) end_steps_with_ops(unrolled, steps, timeline);
  count_peaks(unrolled, timeline);
  summarize_timeline(timeline);
  const double all_cores = cores.cores * static_cast<double>(cores.nodes.count());
  const double bound = std::max(lower_bound(unrolled, table), work_of_ops(unrolled, table) / all_cores);
  const double fastest = 1 - cores.contention.idle_gain * idle_share(1, cores.cores);
  timeline.lower_bound = std::min(fastest * bound, timeline.makespan);
  return timeline;
}

}  // namespace chimera
