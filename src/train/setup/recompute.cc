#include "train/setup/recompute.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "plan/worker_memory.h"

namespace chimera {
namespace {

constexpr double kGiB = 1 << 30;

std::set<StageId> all_stages(std::int64_t count) {
  std::set<StageId> stages;
  for (std::int64_t s = 0; s < count; ++s) stages.emplace(s);
  return stages;
}

const std::set<StageId>& listed_stages(const RecomputeChoice& choice, std::int64_t count) {
  if (choice.stages.rbegin()->value() < count) return choice.stages;
  throw ConfigError(fmt::format("--recompute {}: expected none, full, auto, or stages of 0 to {} such as 0,1",
                                to_text(choice), count - 1));
}

std::set<StageId> stages_for_memory(const Job& job) {
  if (job.options.memory <= 0) {
    throw ConfigError("--recompute auto needs --memory: the GiB that a worker has");
  }
  StageModel model = stage_bytes(job.model, job.partition, job.schedule, workload_of(job.options));
  if (job.options.shard_optimizer) {
    const auto groups = job.rank_groups();
    for (std::size_t s = 0; s < model.costs.memory.size(); ++s)
      model.costs.memory[s].optimizer /= static_cast<double>(groups[s].size());
  }
  const auto stages = stages_to_recompute(job.schedule, model, job.options.memory * kGiB);
  if (stages) return *stages;
  const auto peaks = peaks_by_order(job.schedule, model, all_stages(job.schedule.stages));
  throw ConfigError(
      fmt::format("--memory {:g}: a worker needs {:.3g} GiB even where all stages recompute; use more "
                  "stages or smaller micro-batches",
                  job.options.memory, *std::ranges::max_element(peaks) / kGiB));
}

}  // namespace

Workload workload_of(const TrainOptions& options) {
  Workload workload = workload_of(options.dtype, options.optimizer.kind);
  workload.micro_batch_size = options.micro_batch_size;
  workload.sequence = options.sequence;
  workload.dropout = options.dropout > 0;
  workload.split_documents = options.documents == Documents::Split;
  return workload;
}

std::set<StageId> recomputed_stages(const Job& job) {
  const RecomputeChoice& choice = job.options.recompute;
  switch (choice.rule) {
    case RecomputeRule::None: return {};
    case RecomputeRule::Full: return all_stages(job.schedule.stages);
    case RecomputeRule::Auto: return stages_for_memory(job);
    case RecomputeRule::Listed: return listed_stages(choice, job.schedule.stages);
  }
  return {};
}

}  // namespace chimera
