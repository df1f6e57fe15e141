#include "engine/rerouted_run.h"

#include <algorithm>

#include "check/check_schedule.h"
#include "core/invariant.h"
#include "core/mapped.h"
#include "generate/detours.h"
#include "search/extra_copies.h"

namespace chimera {
namespace {

RankId rank_of(const RankLayout& ranks, WorkerId number) {
  return ranks.rank({GroupId(number.value() / ranks.workers), WorkerId(number.value() % ranks.workers)});
}

/// Keeps the workers of these ranks, in their order.
Schedule kept_workers(Schedule all, const RankLayout& ranks, const std::vector<RankId>& kept) {
  // The numbers of lost workers stay unset: they hold no stage of any path.
  std::vector<WorkerId> new_numbers(all.workers.size());
  std::vector<std::vector<Op>> workers;
  for (const RankId rank : kept) {
    const std::size_t number = worker_number(ranks, rank);
    new_numbers[number] = WorkerId(std::ssize(workers));
    workers.push_back(std::move(all.workers[number]));
  }
  all.workers = std::move(workers);
  // The workers of all groups are now one group; their paths are its replicas.
  all.groups = 1;
  for (auto& path : all.placement.worker_of)
    for (WorkerId& worker : path) worker = new_numbers[worker.index()];
  return all;
}

}  // namespace

std::size_t worker_number(const RankLayout& ranks, RankId rank) {
  const GroupWorker place = ranks.place(rank);
  return place.group.index() * static_cast<std::size_t>(ranks.workers) + place.worker.index();
}

DetourTask detour_task(const RunShape& launched, const RunChange& change, std::int64_t block_size) {
  const RankLayout& ranks = launched.ranks;
  DetourTask task{.healthy = launched.schedule, .groups = ranks.data_parallel, .slow = {}, .block_size = block_size};
  for (const RankId rank : change.lost)
    task.slow.push_back({WorkerId(static_cast<std::int64_t>(worker_number(ranks, rank)))});
  for (std::size_t rank = 0; rank < change.factors.size(); ++rank) {
    const RankId slow(static_cast<std::int64_t>(rank));
    if (change.factors[rank] == 1 || std::ranges::find(change.lost, slow) != change.lost.end()) continue;
    task.slow.push_back({WorkerId(static_cast<std::int64_t>(worker_number(ranks, slow))), 1 / change.factors[rank]});
  }
  for (const auto& [rank, group] : change.extra_copies) {
    if (group == tied_matrix(launched.schedule.stages)) continue;  // Comes with the stages
    task.extra_copies.push_back(
        {StageId(group.value()), WorkerId(static_cast<std::int64_t>(worker_number(ranks, rank)))});
  }
  return task;
}

Schedule rerouted_schedule(const RunShape& launched, const RunChange& change, std::int64_t block_size) {
  return change.schedule ? *change.schedule : make_detours(detour_task(launched, change, block_size)).schedule;
}

std::vector<RankId> remaining_ranks(const RunShape& launched, const std::vector<RankId>& lost) {
  std::vector<RankId> remaining;
  for (RankId rank(0); rank.value() < launched.num_ranks(); rank = RankId(rank.value() + 1))
    if (std::ranges::find(lost, rank) == lost.end()) remaining.push_back(rank);
  return remaining;
}

RunShape rerouted_run(const RunShape& launched, const RunChange& change, std::int64_t block_size) {
  const std::vector<RankId> remaining = remaining_ranks(launched, change.lost);
  RunShape shape = launched;
  shape.schedule = kept_workers(rerouted_schedule(launched, change, block_size), launched.ranks, remaining);
  if (const auto violations = check(shape.schedule); !violations.empty())
    throw ScheduleError(violations.front().message);
  // Worker numbers are now equal to rank numbers.
  shape.ranks = {.workers = std::ssize(remaining), .data_parallel = 1};
  shape.data_position = data_positions(shape.schedule);
  // Each survivor continues with its own samples only if the numbers of generate/detours.h (g N + m) give the positions
  // of the launched run.
  for (std::int64_t m = 0; m < shape.schedule.micro_batches; ++m) {
    const std::int64_t n = launched.schedule.micro_batches;
    require_invariant(
        shape.position(GroupId(0), MicroBatchId(m)) == launched.position(GroupId(m / n), MicroBatchId(m % n)),
        "a micro-batch on a detour has other samples");
  }
  return shape;
}

std::vector<GroupHolder> balancing_copies(const RunShape& launched, const RunChange& change, std::int64_t block_size,
                                          const std::function<bool(const std::vector<GroupHolder>&)>& fits) {
  DetourTask task = detour_task(launched, change, block_size);
  auto most = -std::ssize(task.extra_copies);
  for (const RankId rank : change.lost) most += std::ssize(launched.stages_of(launched.ranks.place(rank).worker));
  const auto holders_of = [&](const std::vector<ExtraCopy>& copies) {
    return mapped<GroupHolder>(copies, [&](const ExtraCopy& copy) {
      return GroupHolder{rank_of(launched.ranks, copy.worker), parameters_of(copy.stage)};
    });
  };
  return holders_of(balance_detours(std::move(task), most, [&](const std::vector<ExtraCopy>& copies) {
                      return fits(holders_of(copies));
                    }).copies);
}

}  // namespace chimera
