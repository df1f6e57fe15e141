#pragma once
// Hybrid parallelism: W data-parallel groups run the same schedule side by side, each on its share of the samples.

#include <cstdint>
#include <vector>

#include "core/choices.h"
#include "core/ids.h"
#include "schedule/dependencies.h"

namespace chimera {

/// A process or thread of a run, as transports count them: with W data-parallel groups of D workers 0 .. W D - 1.
using RankId = Id<struct RankTag, std::int32_t>;

/// Whether ranks of consecutive numbers, which a launcher puts on one machine, are the copies of one worker or the
/// workers of one pipeline.
enum class ReplicaLayout : std::uint8_t {
  Near,  ///< copies side by side: gradients are summed by neighbours, hidden states travel W ranks far
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

/// The ranks that sum the gradients of each parameter group, [group]: ascending and distinct.
using RankGroups = std::vector<std::vector<RankId>>;

/// Which rank is which worker of which data-parallel group.
struct RankLayout {
  std::int64_t workers = 1;        // of one group
  std::int64_t data_parallel = 1;  // W
  ReplicaLayout replicas = ReplicaLayout::Near;

  [[nodiscard]] std::int64_t num_ranks() const { return workers * data_parallel; }
  [[nodiscard]] RankId rank(const GroupWorker& place) const;
  [[nodiscard]] GroupWorker place(RankId rank) const;
  /// The ranks of these workers in all data-parallel groups, where holders[g] sum the gradients of parameter group g
  /// in one (gradient_groups in schedule/schedule.h).
  [[nodiscard]] RankGroups ranks_of(const WorkerGroups& holders) const;
};

}  // namespace chimera
