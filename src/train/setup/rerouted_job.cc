#include "train/setup/rerouted_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "engine/canonical.h"
#include "engine/rerouted_run.h"
#include "engine/sharded_optimizer.h"
#include "train/setup/prepare_job.h"

namespace chimera {

std::vector<RankGroups> Job::shards() const {
  const bool is_rerouted = has_second_shards() && !launched_ranks.empty();
  std::vector<RankGroups> groups;
  for (const std::vector<RankId>& group : is_rerouted ? launched_groups : run.rank_groups()) {
    RankGroups& all = groups.emplace_back(shard_holders(group, has_second_shards()));
    for (std::vector<RankId>& holders : all) {
      if (!is_rerouted) continue;
      std::vector<RankId> running;
      for (const RankId holder : holders) {
        const auto rank = std::ranges::find(launched_ranks, holder) - launched_ranks.begin();
        if (rank < std::ssize(launched_ranks)) running.emplace_back(rank);
      }
      holders = std::move(running);
    }
  }
  return groups;
}

Job rerouted_job(const Job& launched, const std::vector<RankId>& lost) {
  Job job = launched;
  const std::int64_t block_size = launched.canonical ? launched.canonical->block_size : 1;
  job.run = rerouted_run(launched.run, lost, block_size);
  job.launched_ranks = remaining_ranks(launched.run, lost);
  job.lost_ranks = std::ssize(lost);
  job.launched_groups = launched.run.rank_groups();
  if (job.canonical) {
    job.canonical = canonical_reduction(job.run, job.run.micro_batches() / block_size, "--reduction-blocks");
  }
  lower_programs(job);
  return job;
}

std::optional<std::chrono::milliseconds> spare_patience(const Job& job) {
  if (job.options.tensor_parallel > 1) return std::nullopt;  // Not supported yet
  const bool must_reroute = job.options.recover == Recover::Reroute;
  try {
    static_cast<void>(rerouted_job(job, {RankId(0)}));
  } catch (const Error& error) {
    if (must_reroute) throw ConfigError(fmt::format("--recover reroute: without rank 0, {}", error.what()));
    return std::nullopt;
  }
  if (must_reroute) return std::chrono::milliseconds(0);
  return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(job.options.spare_seconds));
}

}  // namespace chimera
