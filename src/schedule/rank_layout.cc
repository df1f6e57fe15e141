#include "schedule/rank_layout.h"

#include <algorithm>

namespace chimera {

WorkerId RankLayout::rank(const GroupWorker& place) const {
  const std::int64_t group = place.group.value();
  const std::int64_t worker = place.worker.value();
  return WorkerId(replicas == ReplicaLayout::Near ? worker * data_parallel + group : group * workers + worker);
}

GroupWorker RankLayout::place(WorkerId rank) const {
  const std::int64_t r = rank.value();
  if (replicas == ReplicaLayout::Near) return {GroupId(r % data_parallel), WorkerId(r / data_parallel)};
  return {GroupId(r / workers), WorkerId(r % workers)};
}

std::vector<std::vector<WorkerId>> RankLayout::ranks_of(const std::vector<std::vector<WorkerId>>& stage_groups) const {
  std::vector<std::vector<WorkerId>> result;
  for (const auto& group : stage_groups) {
    auto& ranks = result.emplace_back();
    for (const WorkerId worker : group) {
      for (std::int64_t g = 0; g < data_parallel; ++g) ranks.push_back(rank({GroupId(g), worker}));
    }
    std::sort(ranks.begin(), ranks.end());
  }
  return result;
}

}  // namespace chimera
