#pragma once
// Numbers the ranks of a run with pipeline and data parallelism: W data-parallel groups of D workers run the same
// schedule, each group on its own samples. Every pair (group, worker) is a rank; engine/tensor_ranks.h adds tensor
// parallelism, in which T ranks share a worker. With two groups of two workers, ranks 0 to 3 are
//
//   near   group 0: ranks 0 and 2   group 1: ranks 1 and 3   copies of a worker are neighbors
//   far    group 0: ranks 0 and 1   group 1: ranks 2 and 3   workers of a pipeline are neighbors

#include "core/choices.h"
#include "schedule/dependencies.h"

namespace chimera {

/// A process or thread of the run, from 0.
using RankId = Id<struct RankTag, std::int32_t>;

/// Whether consecutive ranks, often on one machine, are copies of the same worker or workers of the same pipeline.
enum class ReplicaLayout : std::uint8_t {
  Near,  ///< Copies adjacent: all-reduces between neighbors, activations travel W ranks
  Far,   ///< Pipelines adjacent: activations go to neighbors, copies are D ranks apart
};
template <>
inline constexpr auto kNames<ReplicaLayout> = in_order<ReplicaLayout>("near", "far");

/// A worker of a data-parallel group.
struct GroupWorker {
  GroupId group;
  WorkerId worker;
  friend bool operator==(const GroupWorker&, const GroupWorker&) = default;
};

/// [parameter group]: ranks that sum its gradients, ascending and distinct, from all data-parallel groups. A parameter
/// group is the parameters of a stage, or the tied matrix (dependencies.h).
using RankGroups = std::vector<std::vector<RankId>>;

/// The map between ranks and (group, worker).
struct RankLayout {
  std::int64_t workers = 1;        // D
  std::int64_t data_parallel = 1;  // W
  ReplicaLayout replicas = ReplicaLayout::Near;

  [[nodiscard]] std::int64_t num_ranks() const { return workers * data_parallel; }
  [[nodiscard]] RankId rank(const GroupWorker& place) const;
  [[nodiscard]] GroupWorker place(RankId rank) const;
  /// Returns, for each parameter group, the ranks of its workers in all data-parallel groups. `holders`: its workers,
  /// the same in every data-parallel group.
  [[nodiscard]] RankGroups ranks_of(const WorkerGroups& holders) const;
};

/// A rank that holds a parameter group (dependencies.h), such as a rank that got an extra copy of a stage after another
/// rank was lost.
struct GroupHolder {
  RankId rank;
  ParameterGroupId group;
  friend bool operator==(const GroupHolder&, const GroupHolder&) = default;
};

}  // namespace chimera
