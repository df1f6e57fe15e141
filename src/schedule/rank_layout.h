#pragma once
// Hybrid parallelism: W data-parallel groups run the same schedule side by side, each on its share of the samples.

#include <cstdint>
#include <vector>

#include "core/ids.h"
#include "core/names.h"

namespace chimera {

/// Whether ranks of consecutive numbers, which a launcher puts on one machine, are the copies of one worker or the
/// workers of one pipeline.
enum class ReplicaLayout : std::uint8_t {
  Near,  ///< copies side by side: gradients are summed between neighbours, hidden states travel W ranks far
  Far,   ///< pipelines side by side: hidden states travel to neighbours, copies are a pipeline's workers apart
};
template <>
inline constexpr auto kNames<ReplicaLayout> = std::to_array<Named<ReplicaLayout>>({{ReplicaLayout::Near, "near"},
                                                                                   {ReplicaLayout::Far, "far"}});

/// A worker of one group.
struct GroupWorker {
  GroupId group;
  WorkerId worker;
  friend bool operator==(const GroupWorker&, const GroupWorker&) = default;
};

/// Which rank is which worker of which group. A rank is written as a WorkerId, counted over all groups.
struct RankLayout {
  std::int64_t workers = 1;        // of one group
  std::int64_t data_parallel = 1;  // W
  ReplicaLayout replicas = ReplicaLayout::Near;

  [[nodiscard]] std::int64_t num_ranks() const { return workers * data_parallel; }
  [[nodiscard]] WorkerId rank(const GroupWorker& place) const;
  [[nodiscard]] GroupWorker place(WorkerId rank) const;
  /// The ranks that hold each stage in any replica of any group, ascending: who sums its gradients. Of `stage_groups`,
  /// the workers that hold it in one group.
  [[nodiscard]] std::vector<std::vector<WorkerId>> ranks_of(
      const std::vector<std::vector<WorkerId>>& stage_groups) const;
};

}  // namespace chimera
