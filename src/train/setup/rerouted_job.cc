#include "train/setup/rerouted_job.h"

#include <fmt/format.h>

#include "core/error.h"
#include "engine/canonical.h"
#include "engine/rerouted_run.h"
#include "train/setup/prepare_job.h"

namespace chimera {

Job rerouted_job(const Job& launched, const std::vector<RankId>& lost) {
  Job job = launched;
  const std::int64_t block_size = launched.canonical ? launched.canonical->block_size : 1;
  job.run = rerouted_run(launched.run, lost, block_size);
  job.launched_ranks = remaining_ranks(launched.run, lost);
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
