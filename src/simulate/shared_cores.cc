#include "simulate/shared_cores.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"
#include "schedule/dependencies.h"
#include "simulate/activities.h"
#include "simulate/links.h"
#include "simulate/lower_bound.h"
#include "simulate/steps.h"
#include "simulate/summary.h"
#include "simulate/synchronisation.h"
#include "simulate/weight_versions.h"

namespace chimera {
namespace {

/// Where each worker launches its all-reduces: [step][worker]; empty where nothing is summed at the end of steps.
using Launches = std::vector<std::vector<std::vector<LaunchPoint>>>;

/// The all-reduces of the steps: launched, waiting for their workers' lanes, running.
class Sums {
 public:
  Sums(const Schedule& schedule, const CostTable& costs, double share, Activities& activities, Timeline& timeline)
      : costs_(costs),
        share_(share),
        activities_(activities),
        timeline_(timeline),
        groups_(gradient_groups(schedule.placement, costs.has_tied_matrix())),
        state_(groups_.size()),
        lane_busy_(schedule.workers.size()),
        lane_free_(schedule.workers.size(), 0),
        open_(schedule.workers.size(), 0) {}

  /// Worker w begins a step in which it sums these.
  void begin_step(std::size_t worker, const std::vector<LaunchPoint>& points) {
    lane_free_[worker] = 0;
    for (const LaunchPoint& point : points) open_[worker] += costs_.all_reduce(point.stage) > 0 ? 1 : 0;
  }

  void launch(StageId stage, std::size_t worker, double now, std::optional<Place> after) {
    if (costs_.all_reduce(stage) <= 0) return;
    State& state = state_[stage.index()];
    const bool last = now > state.launched || (now == state.launched && worker < state.last_worker);
    if (last) state = {now, after, worker, state.launches};
    if (++state.launches < groups_[stage.index()].size()) return;
    waiting_.push_back(stage);
    std::stable_sort(waiting_.begin(), waiting_.end(), [&](StageId a, StageId b) {
      const double first = state_[a.index()].launched;
      const double second = state_[b.index()].launched;
      return first != second ? first < second : a < b;
    });
  }

  /// Starts every sum whose workers' lanes are free of those before it.
  void start(double now) {
    std::vector<bool> taken = lane_busy_;
    std::erase_if(waiting_, [&](StageId stage) {
      const auto& group = groups_[stage.index()];
      const bool free = std::none_of(group.begin(), group.end(), [&](WorkerId w) { return taken[w.index()]; });
      for (const WorkerId worker : group) taken[worker.index()] = true;
      if (free) start(stage, now);
      return free;
    });
  }

  void finish(StageId stage, double now) {
    for (const WorkerId worker : groups_[stage.index()]) {
      timeline_.workers[worker.index()].all_reduces.back().end = now;
      lane_free_[worker.index()] = now;
      lane_busy_[worker.index()] = false;
      --open_[worker.index()];
    }
    state_[stage.index()] = {};
  }

  /// When the worker's sums of its step are done; never, where some are still to be.
  [[nodiscard]] double done(std::size_t worker) const { return open_[worker] == 0 ? lane_free_[worker] : kNever; }

 private:
  struct State {
    double launched = -1;  // by the last of its workers
    std::optional<Place> after;
    std::size_t last_worker = 0;
    std::size_t launches = 0;
  };

  void start(StageId stage, double now) {
    const auto& group = groups_[stage.index()];
    const State& state = state_[stage.index()];
    TimedAllReduce sum{stage, state.launched, 0, state.after};
    for (const WorkerId worker : group) {
      if (lane_free_[worker.index()] <= sum.start) continue;
      sum.start = lane_free_[worker.index()];
      sum.launched_by = timeline_.workers[worker.index()].all_reduces.back().launched_by;
    }
    for (const WorkerId worker : group) {
      lane_busy_[worker.index()] = true;
      timeline_.workers[worker.index()].all_reduces.push_back(sum);
    }
    activities_.begin({.kind = Work::Sum,
                       .of = stage.index(),
                       .left = costs_.all_reduce(stage),
                       .demand = share_ * static_cast<double>(group.size()),
                       .share = share_,
                       .since = now});
  }

  const CostTable& costs_;
  double share_;
  Activities& activities_;
  Timeline& timeline_;
  std::vector<std::vector<WorkerId>> groups_;  // [stage]
  std::vector<State> state_;                   // [stage]
  std::vector<StageId> waiting_;               // launched by all their workers, in the order in which lanes take them
  std::vector<bool> lane_busy_;                // [worker]
  std::vector<double> lane_free_;              // [worker]: end of its last sum of this step
  std::vector<std::size_t> open_;              // [worker]: sums of its step that are not done
};

/// One run of all steps.
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
        activities_(cores.cores),
        sums_(schedule, costs, cores.all_reduce_share, activities_, timeline),
        all_reduce_share_(cores.all_reduce_share),
        links_(costs),
        update_times_(costs.updates(schedule)),
        updates_(schedule),
        workers_(schedule.workers.size()),
        arrived_(table_.size(), kNever) {}

  void run() {
    if (!schedule_.updates) timeline_.step_ends.assign(ranges_.size(), 0);
    for (std::size_t w = 0; w < workers_.size(); ++w) begin_step(w);
    for (double now = next_event(); now < kNever; now = next_event()) {
      for (const Activity& activity : activities_.finished(now)) finish(activity, now);
      for (std::size_t w = 0; w < workers_.size(); ++w) {
        while (ready(w) <= now) begin_next(w, now);
      }
      sums_.start(now);
      activities_.share_out(now);
    }
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      if (workers_[w].position < schedule_.workers[w].size()) throw_stuck(schedule_);
    }
  }

 private:
  struct Worker {
    std::size_t step = 0;
    std::size_t position = 0;  // of its next op
    double free = 0;           // since when it has nothing running
    bool busy = false;
    bool launched_all = false;                               // of this step
    std::optional<std::size_t> update_after = std::nullopt;  // asynchronous: the op whose update is to come
    double update_start = 0;                                 // of it
  };

  bool synchronous() const { return !schedule_.updates; }

  double next_event() const {
    double next = activities_.next_finish();
    for (std::size_t w = 0; w < workers_.size(); ++w) next = std::min(next, ready(w));
    return next;
  }

  /// When the worker may begin what comes next.
  double ready(std::size_t w) const {
    const Worker& worker = workers_[w];
    if (worker.busy || worker.step == ranges_.size()) return kNever;
    if (worker.update_after) return worker.free;
    if (worker.position < ranges_[worker.step][w].end) return op_ready(w);
    if (!synchronous()) return kNever;
    return worker.launched_all ? std::max(worker.free, sums_.done(w)) : worker.free;
  }

  double op_ready(std::size_t w) const {
    double start = workers_[w].free;
    for (const OpIndex input : table_.inputs(schedule_.workers[w][workers_[w].position])) {
      if (input != kNoOp) start = std::max(start, arrival(input, w));
    }
    return start;
  }

  double arrival(OpIndex made, std::size_t w) const {
    const std::size_t maker = table_.worker(made);
    if (maker != w || arrived_[made] == kNever) return arrived_[made];
    return timeline_.workers[w].ops[made - table_.first(w)].end;
  }

  void begin_next(std::size_t w, double now) {
    Worker& worker = workers_[w];
    if (worker.update_after) {
      begin_own_update(w, now);
    } else if (worker.position < ranges_[worker.step][w].end) {
      timeline_.workers[w].ops[worker.position].start = now;
      begin(w, Work::Op, costs_.duration(schedule_.workers[w][worker.position]), now);
    } else if (!worker.launched_all) {
      launch_rest(w, now);
    } else {
      timeline_.workers[w].updates.push_back({worker.position, now, now});
      begin(w, Work::Update, update_times_[w], now);
    }
  }

  void begin(std::size_t w, Work kind, double time, double now, double share = 1) {
    workers_[w].busy = true;
    activities_.begin({.kind = kind, .of = w, .left = time, .demand = share, .share = share, .since = now});
  }

  void finish(const Activity& activity, double now) {
    if (activity.kind == Work::Sum) return sums_.finish(StageId(static_cast<std::int64_t>(activity.of)), now);
    Worker& worker = workers_[activity.of];
    worker.busy = false;
    worker.free = now;
    if (activity.kind == Work::Op) finish_op(activity.of, now);
    if (activity.kind == Work::OwnSum) begin_optimizer(activity.of, now);
    if (activity.kind == Work::Update) finish_update(activity.of, now);
  }

  void finish_op(std::size_t w, double now) {
    Worker& worker = workers_[w];
    const std::size_t position = worker.position++;
    const Op& op = schedule_.workers[w][position];
    timeline_.workers[w].ops[position].end = now;
    send(static_cast<OpIndex>(table_.first(w) + position), op, w, now);
    if (updates_.completes_update(op)) worker.update_after = position;
    if (launches_.empty()) return;
    for (const auto& [stage, after_op] : launches_[worker.step][w]) {
      if (after_op == position) sums_.launch(stage, w, now, Place{w, position});
    }
  }

  void send(OpIndex index, const Op& op, std::size_t w, double now) {
    arrived_[index] = now + costs_.delay();  // for an op on a worker that its placement does not say
    const OpIndex consumer = table_.consumer(op);
    if (consumer == kNoOp || table_.worker(consumer) == w) return;
    arrived_[index] = links_.send(w, table_.worker(consumer), op, now).arrived;
    if (costs_.blocking_sends()) workers_[w].free = arrived_[index];
  }

  void begin_step(std::size_t w) {
    workers_[w].launched_all = false;
    if (!launches_.empty()) sums_.begin_step(w, launches_[workers_[w].step][w]);
  }

  void launch_rest(std::size_t w, double now) {
    Worker& worker = workers_[w];
    worker.launched_all = true;
    if (launches_.empty()) return;
    const StepRange range = ranges_[worker.step][w];
    const auto last = range.begin == range.end ? std::nullopt : std::optional(Place{w, range.end - 1});
    for (const auto& [stage, after_op] : launches_[worker.step][w]) {
      if (!after_op) sums_.launch(stage, w, now, last);
    }
  }

  void begin_own_update(std::size_t w, double now) {
    const StageId stage = schedule_.workers[w][*workers_[w].update_after].stage;
    workers_[w].update_start = now;
    begin(w, Work::OwnSum, costs_.all_reduce(stage), now, all_reduce_share_);
  }

  void begin_optimizer(std::size_t w, double now) {
    const Place place{w, *workers_[w].update_after};
    const StageId stage = schedule_.workers[w][place.position].stage;
    const double start = workers_[w].update_start;
    if (now > start) timeline_.workers[w].all_reduces.push_back({stage, start, now, place});
    timeline_.workers[w].updates.push_back({place.position + 1, start, now});
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
  Sums sums_;
  double all_reduce_share_;
  Links links_;
  std::vector<double> update_times_;  // [worker], at the end of a synchronous step
  UpdateCounter updates_;
  std::vector<Worker> workers_;
  std::vector<double> arrived_;  // [op]: at its consumer; kNever before the op has ended
};

void require_valid(const SharedCores& cores) {
  if (!std::isfinite(cores.cores) || cores.cores <= 0)
    throw ConfigError(fmt::format("cores: {} is not a finite number above 0", cores.cores));
  if (!(cores.all_reduce_share >= 0 && cores.all_reduce_share <= 1))
    throw ConfigError(fmt::format("share of all-reduces that computes: {} is not in [0, 1]", cores.all_reduce_share));
}

Launches launches_in(const Schedule& schedule, const std::vector<std::vector<StepRange>>& ranges,
                     const CostTable& costs, const Timeline& timeline) {
  const auto held =
      summed_stages(gradient_groups(schedule.placement, costs.has_tied_matrix()), schedule.workers.size());
  Launches launches;
  for (const auto& step : ranges) {
    auto& workers = launches.emplace_back();
    for (std::size_t w = 0; w < step.size(); ++w)
      workers.push_back(launch_points(schedule, costs, w, held[w], step[w], timeline.workers[w].ops));
  }
  return launches;
}

double work_of_ops(const Schedule& schedule, const CostTable& costs) {
  double work = 0;
  for (const auto& ops : schedule.workers) {
    for (const Op& op : ops) work += costs.duration(op);
  }
  return work;
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
  CoresRun(unrolled, ranges, table, cores, {}, timeline).run();
  if (!unrolled.updates && table.has_all_reduces()) {
    const Launches launches = launches_in(unrolled, ranges, table, timeline);
    timeline = empty_timeline(unrolled);
    CoresRun(unrolled, ranges, table, cores, launches, timeline).run();
  }
  if (unrolled.updates) end_steps_with_ops(unrolled, steps, timeline);
  sum_up(unrolled, timeline);
  const double bound = std::max(lower_bound(unrolled, table), work_of_ops(unrolled, table) / cores.cores);
  timeline.lower_bound = std::min(bound, timeline.makespan);
  return timeline;
}

}  // namespace chimera
