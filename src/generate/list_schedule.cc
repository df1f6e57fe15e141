// A generator's task becomes queues of ops with times in ticks, which list_orders() orders.

#include "generate/list_schedule.h"

#include <algorithm>

#include "core/invariant.h"
#include "generate/list_orders.h"
#include "schedule/dependencies.h"

namespace chimera {
namespace {

std::size_t num_workers(const Placement& placement) {
  std::size_t workers = 0;
  for (const auto& row : placement.worker_of)
    for (const WorkerId w : row) workers = std::max(workers, w.index() + 1);
  return workers;
}

Instance queues_of(const ListTask& task, const MicroBatches& members) {
  Instance instance{.workers = static_cast<std::int32_t>(num_workers(task.placement)),
                    .slices = static_cast<std::int32_t>(task.slices),
                    .split_backward = task.split_backward};
  add_queues(instance, task.placement, members);
  for (QueueIndex index = 0; index < std::ssize(instance.queues); ++index) {
    OpQueue& queue = instance.queues[static_cast<std::size_t>(index)];
    const auto worker = static_cast<std::size_t>(queue.worker);
    const std::int64_t ticks = task.worker_ticks.empty() ? task.op_ticks : task.worker_ticks[worker];
    queue.duration = static_cast<double>(unit_duration(kind_of(instance, index)) * ticks);
    if (index % kQueuesOfChain == kWeightStep)
      queue.input = index - 1;  // So that the rank of a W can depend on the end of its I
    if (queue.input != kNoQueue && instance.queues[static_cast<std::size_t>(queue.input)].worker != queue.worker)
      queue.delay = static_cast<double>(task.latency_ticks);
  }
  // In the order of ties
  for (auto& chains : instance.chains)
    std::ranges::stable_sort(chains, std::greater(),
                             [&](std::int32_t chain) { return instance.stage[static_cast<std::size_t>(chain)]; });
  return instance;
}

constexpr const char* kNoRoom = "a limit on activations has no room for one micro-batch";

void limit_workers(Instance& instance, const std::vector<std::int64_t>& credits) {
  if (credits.empty()) return;
  instance.size.emplace_back(instance.replica.size(), 1);
  instance.room.emplace_back(credits.begin(), credits.end());
  for (std::size_t w = 0; w < instance.chains.size(); ++w)
    require_invariant(needed_by_one(instance, 0, w).first <= instance.room[0][w], kNoRoom);
}

std::vector<std::int32_t> credits_of_chains(const Instance& instance, const ListTask& task) {
  std::vector<std::int32_t> credits;
  for (const auto& row : task.stage_credits) {
    for (const std::int64_t each : row) {
      const std::size_t chain = credits.size();
      credits.push_back(static_cast<std::int32_t>(each));
      const bool has_ops = instance.queues[kQueuesOfChain * chain].count > 0;
      require_invariant(!has_ops || each >= task.slices, kNoRoom);
    }
  }
  return credits;
}

/// `rank` is a function of an Op, its age, and the arrival of its inputs.
template <class Rank>
ListResult schedule_by(const ListTask& task, const DepthLimits& limits, const Rank& rank) {
  MicroBatches members(task.placement.num_replicas());
  for (std::size_t m = 0; m < task.replica_of.size(); ++m)
    members[task.replica_of[m].index()].emplace_back(static_cast<std::int64_t>(m));
  Instance instance = queues_of(task, members);
  limit_workers(instance, task.worker_credits);
  const auto rank_of = [&](QueueIndex queue, std::int32_t k, double arrival) {
    return AgedRank{static_cast<double>(rank(op_of(instance, members, queue, k), k, arrival)), k};
  };
  const ListedOrders listed = list_orders(instance, {.rank_of = rank_of,
                                                     .credits = credits_of_chains(instance, task),
                                                     .admitted = limits.admitted,
                                                     .most_held = limits.most_held});
  ListResult result{.makespan = static_cast<std::int64_t>(listed.makespan)};
  result.schedule.stages = std::ssize(task.placement.worker_of.at(0));
  result.schedule.micro_batches = std::ssize(task.replica_of);
  result.schedule.placement = task.placement;
  result.schedule.slices = task.slices;
  result.schedule.workers.resize(instance.chains.size());
  append_ops(result.schedule, instance, members, listed.orders);
  result.peak_in_flight = peak_in_flight(result.schedule);
  return result;
}

}  // namespace

ListResult list_schedule(const ListTask& task, const ListRank& rank) {
  return schedule_by(task, {}, [&](const Op& op, std::int64_t age, double) { return rank(op, age); });
}

Schedule deepest_first(ListTask task, const DepthLimits& limits) {
  task.split_backward = true;
  const auto stages = std::ssize(task.placement.worker_of.at(0));
  const auto replicas = static_cast<std::int64_t>(task.placement.num_replicas());
  const auto deepest = [&](const Op& op, std::int64_t, double arrival) {
    constexpr double kAfterForwards = 1e12;
    if (op.kind == OpKind::BackwardWeight) return kAfterForwards + arrival;
    const std::int64_t s = op.stage.value();
    // Done, through all stages and back
    const std::int64_t steps = op.kind == OpKind::Forward ? s : 2 * stages - 1 - s;
    return static_cast<double>(op.replica.value() - steps * replicas);
  };
  return schedule_by(task, limits, deepest).schedule;
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
