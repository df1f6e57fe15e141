// make_detours() joins the schedules of all groups into one (in_all_groups()), lets find_routes() choose the workers of
// each micro-batch, and then orders the ops by list scheduling (`Ordering`): first in the order of the healthy
// schedule, and if that is too slow, with the op first that is farthest along. Each order is improved up to twice by
// a list schedule in which the ops with the earliest late_starts() come first. All of this is repeated for other limits
// on activations and other routes, until an order is within 5 % of the bound or the effort is spent.

#include "generate/detours.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "core/mapped.h"
#include "core/reject.h"
#include "generate/list_orders.h"
#include "generate/list_schedule.h"
#include "schedule/dependencies.h"

namespace chimera {
namespace {

constexpr std::int64_t kMaxRows = std::numeric_limits<std::int16_t>::max();  // Range of ReplicaId

/// Returns the most slices that a micro-batch has on a worker.
std::int64_t fewest_credits(const Placement& placement, std::int64_t slices) {
  std::int64_t fewest = 0;
  for (const auto& row : placement.worker_of) {
    std::map<WorkerId, std::int64_t> here;
    for (const WorkerId worker : row) fewest = std::max(fewest, here[worker] += slices);
  }
  return fewest;
}

// Each op moves to the latest free time before the ops that need it. All of them fit: an op that comes first in this
// order moves to its old start or later, so an op's own old time is still free.
/// Returns [op]: a late start at which the schedule still ends at `end`. `units` is [worker]: the time of an F.
std::vector<std::int64_t> late_starts(const OpTable& table, const std::vector<std::int64_t>& units, std::int64_t end) {
  const auto start = unit_start_times(table, Pairs::InOrder, units);
  const auto duration = [&](OpIndex op) { return unit_duration(table.op(op).kind) * units[table.worker(op)]; };
  std::vector<OpIndex> order(table.size());
  for (OpIndex op = 0; op < table.size(); ++op) order[op] = op;
  std::ranges::stable_sort(order,
                           [&](OpIndex a, OpIndex b) { return start[a] + duration(a) > start[b] + duration(b); });
  std::vector<std::int64_t> late(table.size());
  std::vector<std::int64_t> latest_end(table.size(), end);
  // [worker][unit of time]: whether an op has it already.
  std::vector<std::vector<bool>> taken(table.schedule().workers.size(),
                                       std::vector<bool>(static_cast<std::size_t>(end), false));
  for (const OpIndex op : order) {
    auto& times = taken[table.worker(op)];
    const auto is_free = [&](std::int64_t from) {
      const auto first = times.begin() + from;
      return std::find(first, first + duration(op), true) == first + duration(op);
    };
    late[op] = latest_end[op] - duration(op);
    while (!is_free(late[op])) --late[op];
    std::fill_n(times.begin() + late[op], duration(op), true);
    for (const OpIndex input : table.inputs(table.op(op)))
      if (input != kNoOp) latest_end[input] = std::min(latest_end[input], late[op]);
  }
  // A stage keeps the order of its micro-batches, so its latest starts must ascend in this order.
  std::map<std::tuple<OpKind, ReplicaId, StageId>, std::vector<OpIndex>> lanes;
  for (OpIndex op = 0; op < table.size(); ++op)
    lanes[{table.op(op).kind, table.op(op).replica, table.op(op).stage}].push_back(op);
  for (const auto& [name, lane] : lanes) {
    auto times = mapped(lane, [&](OpIndex op) { return late[op]; });
    std::ranges::sort(times);
    for (std::size_t i = 0; i < lane.size(); ++i) late[lane[i]] = times[i];
  }
  return late;
}

/// Orders the ops of a placement by list scheduling.
class Ordering {
 public:
  /// `worker_ticks` is [worker]: the duration of an F.
  Ordering(const Schedule& healthy, std::vector<std::int64_t> worker_ticks, std::int64_t effort)
      : healthy_(healthy), worker_ticks_(std::move(worker_ticks)), effort_(effort) {}

  /// Whether enough orders were tried.
  [[nodiscard]] bool is_spent() const { return ordered_ops_ > effort_; }

  /// Returns the best order with at most `credits` activations in flight on a worker. Stops at `deadline`.
  [[nodiscard]] ListResult run(const Routes& routes, std::int64_t credits, std::int64_t deadline) {
    ListTask task{.placement = routes.placement,
                  .replica_of = routes.replica_of,
                  .slices = healthy_.slices,
                  .split_backward = is_split_,
                  .worker_ticks = worker_ticks_};
    task.worker_credits.assign(healthy_.workers.size(), credits);
    ListResult best = improved(task, ordered(task, healthy_order(routes)), deadline);
    if (best.makespan <= deadline) return best;
    return pick_better(std::move(best), improved(task, ordered(task, deepest_order()), deadline));
  }

 private:
  static constexpr std::int64_t kNextClass = 1'000'000'000'000;

  ListResult ordered(const ListTask& task, const ListRank& rank) {
    ordered_ops_ += num_ops(healthy_);
    return list_schedule(task, rank);
  }

  /// I and B before F before W; each as in the healthy schedule.
  [[nodiscard]] ListRank healthy_order(const Routes& routes) const {
    return [this, &routes](const Op& op, std::int64_t) {
      const MicroBatchId place = routes.place_of[op.micro_batch.index()];
      if (op.kind == OpKind::Forward) return kNextClass + start_[table_.find(op.kind, op.stage, place, op.slice)];
      // The healthy schedule may split only some of the backwards.
      const std::int64_t start = start_[table_.find_input_gradient(op.stage, place, op.slice)];
      return op.kind == OpKind::BackwardWeight ? 2 * kNextClass + start : start;
    };
  }

  /// The op that is farthest along the way through all stages and back; W last.
  [[nodiscard]] ListRank deepest_order() const {
    return [stages = healthy_.stages](const Op& op, std::int64_t) {
      if (op.kind == OpKind::BackwardWeight) return kNextClass;
      return op.kind == OpKind::Forward ? -op.stage.value() : op.stage.value() - 2 * stages + 1;
    };
  }

  /// Orders the ops by their latest starts in the last order, a few times. Returns the best order.
  ListResult improved(const ListTask& task, ListResult first, std::int64_t deadline) {
    constexpr int kRounds = 2;
    ListResult best = first;
    for (int round = 0; round < kRounds && best.makespan > deadline && !is_spent(); ++round) {
      const OpTable table(first.schedule);
      const auto late = late_starts(table, task.worker_ticks, first.makespan);
      ListResult next = ordered(task, [&](const Op& op, std::int64_t) {
        return late[table.find(op.kind, op.stage, op.micro_batch, op.slice)];
      });
      first = std::move(next);
      best = pick_better(std::move(best), first);
    }
    return best;
  }

  const Schedule& healthy_;
  std::vector<std::int64_t> worker_ticks_;
  OpTable table_{healthy_};
  std::vector<std::int64_t> start_ = unit_start_times(table_);  // [op]
  bool is_split_ = has_split_backwards(healthy_);
  std::int64_t effort_;
  std::int64_t ordered_ops_ = 0;
};

constexpr std::int64_t kTicks = 12;  // Of an F on a healthy worker, if workers are slow

/// Returns [worker]: the ticks of an F, which takes `unit` on a healthy worker.
std::vector<std::int64_t> ticks_of(const std::vector<double>& speeds, std::int64_t unit) {
  return mapped(speeds, [unit](double speed) {
    return speed == 0 ? unit : std::max<std::int64_t>(1, std::llround(static_cast<double>(unit) / speed));
  });
}

/// Returns the time of the busiest worker in ticks, which no order can beat.
std::int64_t busiest_ticks(const Schedule& all, const Routes& routes, const std::vector<std::int64_t>& ticks) {
  std::vector<std::int64_t> load(ticks.size(), 0);
  for (const ReplicaId replica : routes.replica_of)
    for (const WorkerId worker : routes.placement.worker_of[replica.index()])
      load[worker.index()] += 3 * all.slices * ticks[worker.index()];
  return std::ranges::max(load);
}

/// The healthy schedule
Detours unchanged(const Schedule& all, double unit) {
  Detours result{.schedule = all, .peak_in_flight = static_cast<double>(peak_in_flight(all)) * unit};
  const OpTable table(all);
  const auto start = unit_start_times(table);
  result.bound = find_routes({.healthy = all, .speeds = std::vector<double>(all.workers.size(), 1)}).bound;
  for (OpIndex op = 0; op < table.size(); ++op)
    result.makespan = std::max(result.makespan, static_cast<double>(start[op] + unit_duration(table.op(op).kind)));
  return result;
}

}  // namespace

std::vector<double> worker_speeds(const DetourTask& task) {
  const auto workers = task.groups * std::ssize(task.healthy.workers);
  std::vector<double> speeds(static_cast<std::size_t>(workers), 1);
  const auto require = [&](WorkerId worker) {
    if (worker.value() >= 0 && worker.value() < workers) return;
    reject("there is no worker {}; workers are 0 to {}", worker.value(), workers - 1);
  };
  for (const auto& [worker, speed] : task.slow) {
    require(worker);
    speeds[worker.index()] = speed;
  }
  for (const ExtraCopy& copy : task.extra_copies) {
    require(copy.worker);
    if (speeds[copy.worker.index()] == 0)
      reject("worker {} is lost, and cannot have a copy of a stage", copy.worker.value());
    if (copy.stage.value() >= 0 && copy.stage.value() < task.healthy.stages) continue;
    reject("there is no stage {}; stages are 0 to {}", copy.stage.value(), task.healthy.stages - 1);
  }
  return speeds;
}

Schedule in_all_groups(const Schedule& group, std::int64_t groups) {
  const auto replicas = static_cast<std::int64_t>(group.placement.num_replicas());
  if (groups < 1 || groups > kMaxRows / std::max<std::int64_t>(replicas, 1) ||
      groups > kMaxOps / std::max<std::int64_t>(num_ops(group), 1))
    reject("{} groups of {} replicas and {} ops; a schedule has 1 to {} replicas and at most {} ops", groups, replicas,
           num_ops(group), kMaxRows, kMaxOps);
  Schedule all = group;
  all.micro_batches = group.micro_batches * groups;
  all.groups = groups;
  all.placement.worker_of.clear();
  all.workers.clear();
  const auto workers = std::ssize(group.workers);
  for (std::int64_t g = 0; g < groups; ++g) {
    for (auto row : group.placement.worker_of) {
      for (WorkerId& worker : row) worker = WorkerId(g * workers + worker.value());
      all.placement.worker_of.push_back(std::move(row));
    }
    for (auto ops : group.workers) {
      for (Op& op : ops) {
        op.replica = ReplicaId(g * replicas + op.replica.value());
        op.micro_batch = MicroBatchId(g * group.micro_batches + op.micro_batch.value());
      }
      all.workers.push_back(std::move(ops));
    }
  }
  return all;
}

// The assignment of micro-batches to paths has many optimal solutions, and the order of ops is easier to find for
// some of them. So a few variants are tried, each with more and more activations, until the makespan is near the bound.
Detours make_detours(const DetourTask& task) {
  if (task.healthy.updates) throw ConfigError("an asynchronous schedule cannot go on without a worker");
  const std::vector<double> speeds = worker_speeds(task);
  const Schedule all = without_pairs(in_all_groups(task.healthy, task.groups));
  // Stage units of one activation: the size of a stage, relative to a worker's part of a replica, times the size of a
  // slice.
  const double unit = static_cast<double>(workers_per_group(all)) / static_cast<double>(all.stages) *
                      all.micro_batch_scale / static_cast<double>(all.slices);
  if (task.slow.empty() && task.extra_copies.empty()) return unchanged(all, unit);
  std::int64_t limit = std::numeric_limits<std::int64_t>::max();
  if (task.most_in_flight) limit = static_cast<std::int64_t>(std::floor(*task.most_in_flight / unit + kRounding));
  const bool has_slow = std::ranges::any_of(speeds, [](double speed) { return speed != 0 && speed != 1; });
  const std::int64_t unit_ticks = has_slow ? kTicks : 1;
  const std::vector<std::int64_t> ticks = ticks_of(speeds, unit_ticks);
  Ordering ordering(all, ticks, task.effort);
  const std::int64_t healthy_most = peak_in_flight(all);
  std::optional<ListResult> best;
  double bound = 0;
  constexpr std::uint64_t kVariants = 10;
  constexpr double kGood = 1.05;
  for (std::uint64_t variant = 0; variant < kVariants; ++variant) {
    const Routes routes = find_routes({.healthy = all,
                                       .speeds = speeds,
                                       .times = task.times,
                                       .extra_copies = task.extra_copies,
                                       .block_size = task.block_size,
                                       .variant = variant});
    bound = routes.bound;
    const std::int64_t deadline = task.times.empty()
                                      ? static_cast<std::int64_t>(bound * static_cast<double>(unit_ticks) + kRounding)
                                      : busiest_ticks(all, routes, ticks);
    const std::int64_t least = fewest_credits(routes.placement, all.slices);
    if (limit < least)
      reject(
          "without the lost workers, a worker needs {:.6g} stage units of activations for one micro-batch; {:.6g} are "
          "allowed",
          static_cast<double>(least) * unit, *task.most_in_flight);
    std::int64_t before = 0;
    // A survivor with the ops of several paths may need more activations than any healthy worker holds.
    for (const std::int64_t percent : {100, 125, 150, 200}) {
      const std::int64_t credits = std::min(limit, std::max(least, (healthy_most * percent + 99) / 100));
      // Below the user's limit, several percentages give the same credits.
      if (std::exchange(before, credits) == credits) continue;
      ListResult result = ordering.run(routes, credits, deadline);
      best = best ? pick_better(std::move(*best), std::move(result)) : std::move(result);
      if (best->makespan <= deadline || ordering.is_spent()) break;
    }
    if (static_cast<double>(best->makespan) <= kGood * static_cast<double>(deadline) || ordering.is_spent()) break;
  }
  Detours detours{.schedule = std::move(best->schedule),
                  .makespan = static_cast<double>(best->makespan) / static_cast<double>(unit_ticks),
                  .bound = bound,
                  .peak_in_flight = static_cast<double>(best->peak_in_flight) * unit};
  detours.schedule.name = all.name;
  detours.schedule.workers.resize(all.workers.size());  // The list schedule ends with the last worker that has a stage
  detours.schedule.micro_batch_scale = all.micro_batch_scale;
  detours.schedule.groups = all.groups;
  return detours;
}

}  // namespace chimera
