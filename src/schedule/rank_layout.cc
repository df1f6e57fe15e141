#include "schedule/rank_layout.h"

#include <algorithm>

namespace chimera {

RankId RankLayout::rank(const GroupWorker& place) const {
  const std::int64_t group = place.group.value();
  const std::int64_t worker = place.worker.value();
  return RankId(replicas == ReplicaLayout::Near ? worker * data_parallel + group : group * workers + worker);
}

GroupWorker RankLayout::place(RankId rank) const {
  const std::int64_t r = rank.value();
  if (replicas == ReplicaLayout::Near) return {GroupId(r % data_parallel), WorkerId(r / data_parallel)};
  return {GroupId(r / workers), WorkerId(r % workers)};
}

RankGroups RankLayout::ranks_of(const WorkerGroups& holders) const {
  RankGroups result;
  for (const auto& group : holders) {
    auto& ranks = result.emplace_back();
    // Each worker of the schedule has a copy in every data-parallel group, and all copies sum together.
    for (const WorkerId worker : group)
      for (std::int64_t g = 0; g < data_parallel; ++g) ranks.push_back(rank({GroupId(g), worker}));
    std::sort(ranks.begin(), ranks.end());
  }
  return result;
}

}  // namespace chimera
