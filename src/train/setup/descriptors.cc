#include "train/setup/descriptors.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "train/setup/device.h"
#include "transport/gloo/gloo_transport.h"

namespace chimera {
namespace {

/// Memory files of a rank that holds so many parameter groups: their gradients, those of both uses of a tied matrix,
/// and the blocks of a canonical reduction.
std::int64_t memory_files(const Job& job, std::int64_t groups) {
  constexpr std::int64_t kBlocks = 8;
  const auto replicas = static_cast<std::int64_t>(job.schedule.placement.num_replicas());
  return groups * (job.canonical ? 2 + kBlocks * replicas : 2);
}

}  // namespace

std::int64_t descriptors_needed(const Job& job) {
  constexpr std::int64_t kOwn = 20;  // standard streams, the launcher's channels, files that are read and written
  const std::int64_t ranks = job.num_ranks();
  const RankGroups groups = job.rank_groups();
  std::vector<std::int64_t> held(static_cast<std::size_t>(ranks), 0);  // [rank]: parameter groups
  for (const auto& group : groups) {
    for (const RankId rank : group) ++held[rank.index()];
  }
  std::int64_t files = 0;
  std::int64_t most = 0;
  for (const std::int64_t count : held) {
    files += memory_files(job, count);
    most = std::max(most, memory_files(job, count));
  }
  if (job.options.transport == TransportKind::Threads || ranks == 1) return kOwn + files;
  return kOwn + std::max(ranks, most + gloo_descriptors(ranks, groups, talking_pairs(job)));
}

}  // namespace chimera
