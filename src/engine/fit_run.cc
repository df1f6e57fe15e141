#include "engine/fit_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>
#include <utility>

#include "core/error.h"
#include "engine/canonical.h"
#include "engine/programs.h"
#include "engine/talking_pairs.h"
#include "model_config/partition.h"

namespace chimera {
namespace {

void require(bool fits, const char* what) {
  if (!fits) throw ConfigError(what);
}

void require_possible(const FitRun& run) {
  const FitOptions& options = run.options;
  require(!run.model.layers.empty(), "Model::layers: a model needs at least one layer");
  require(run.model.loss.sum && run.model.loss.count, "Model::loss: needs both of its functions");
  require(static_cast<bool>(run.data), "Data: needs a function that gives batches");
  require(options.data_parallel >= 1, "FitOptions::data_parallel must be at least 1");
  require(options.micro_batch_size >= 1, "FitOptions::micro_batch_size must be at least 1");
  require(options.steps >= 1, "FitOptions::steps must be at least 1");
  require(options.learning_rate.warmup >= 0, "FitOptions::learning_rate.warmup must be at least 0");
  require(options.reduction_blocks >= 0, "FitOptions::reduction_blocks must be at least 0");
  require(options.threads >= 0, "FitOptions::threads must be at least 0");
  for (const std::string& fault : {fault_of(options.learning_rate, options.steps), fault_of(options.optimizer)}) {
    if (!fault.empty()) throw ConfigError("FitOptions: " + fault);
  }
}

RunRequest request_of(const FitOptions& options) {
  return {.schedule = {options.schedule, options.shape,
                       options.own_schedule ? std::make_shared<const Schedule>(*options.own_schedule) : nullptr},
          .data_parallel = options.data_parallel,
          .micro_batch_size = options.micro_batch_size};
}

void require_trainable(const FitRun& run) {
  if (run.schedule.updates) {
    throw ConfigError(
        fmt::format("schedule {}: asynchronous schedules do not train a model of one's own; choose one with a flush",
                    run.schedule.name));
  }
  require_whole_micro_batches(run, "FitOptions::micro_batch_size");
}

std::vector<std::int64_t> partition_ends(const FitRun& run) {
  const auto layers = static_cast<std::int64_t>(run.model.layers.size());
  const auto& counts = run.options.partition;
  std::vector<std::int64_t> ends;
  if (counts.empty()) {
    for (const StageLayers& stage : even_partition(layers, run.schedule.stages)) ends.push_back(stage.end_layer);
    return ends;
  }
  const bool positive = std::ranges::all_of(counts, [](std::int64_t count) { return count > 0; });
  const auto total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  if (!positive || total != layers || static_cast<std::int64_t>(counts.size()) != run.schedule.stages) {
    throw ConfigError(fmt::format("FitOptions::partition [{}] must be {} positive numbers that add up to {} layers",
                                  fmt::join(counts, ", "), run.schedule.stages, layers));
  }
  ends.resize(counts.size());
  std::partial_sum(counts.begin(), counts.end(), ends.begin());
  return ends;
}

/// Throws ConfigError for a stage that there is not, and for `auto`: what a user's modules hold is not known here.
std::set<StageId> recomputed_stages(const RecomputeChoice& choice, std::int64_t stages) {
  std::set<StageId> all;
  for (std::int64_t s = 0; s < stages; ++s) all.emplace(s);
  switch (choice.rule) {
    case RecomputeRule::None: return {};
    case RecomputeRule::Full: return all;
    case RecomputeRule::Listed:
      if (std::ranges::includes(all, choice.stages)) return choice.stages;
      break;
    case RecomputeRule::Auto: break;
  }
  throw ConfigError(
      fmt::format("recompute {}: expected none, full, or stages of 0 to {} such as 0,1", to_text(choice), stages - 1));
}

}  // namespace

SampleRange FitRun::samples(std::int64_t step, GroupId group, MicroBatchId micro_batch) const {
  return {step, first_sample(group, micro_batch), micro_batch_size()};
}

ModuleStageSpec FitRun::stage(StageId id) const {
  const bool last = id.value() + 1 == schedule.stages;
  return {id, id.value() == 0 ? 0 : ends[id.index() - 1], ends[id.index()], last ? &model.loss : nullptr};
}

ModuleUse FitRun::use(StageId id) const {
  return {.replicated = rank_groups()[id.index()].size() > 1, .recomputed = recompute.contains(id)};
}

RankId FitRun::owner(StageId id) const { return ranks.rank({GroupId(0), schedule.placement.worker(ReplicaId(0), id)}); }

std::vector<RankPair> FitRun::talking_pairs() const {
  std::set<RankPair> pairs;
  add_talking_pairs(ranks, program, pairs);
  add_talking_pairs(ranks, validation, pairs);
  const RankGroups holders = rank_groups();
  for (std::size_t s = 0; s < holders.size(); ++s) {
    const RankId giver = owner(StageId(static_cast<std::int64_t>(s)));
    for (const RankId taker : holders[s]) {
      if (taker == giver) continue;
      const auto [low, high] = std::minmax({static_cast<int>(giver.value()), static_cast<int>(taker.value())});
      pairs.insert({low, high});
    }
  }
  return {pairs.begin(), pairs.end()};
}

FitRun prepare_fit(Model model, Data data, FitOptions options) {
  FitRun run;
  run.model = std::move(model);
  run.data = std::move(data);
  run.options = std::move(options);
  require_possible(run);
  static_cast<RunShape&>(run) = run_shape(request_of(run.options));
  require_trainable(run);
  run.ends = partition_ends(run);
  run.recompute = recomputed_stages(run.options.recompute, run.schedule.stages);
  if (run.options.reduction == ReductionOrder::Canonical) {
    run.canonical = canonical_reduction(run, run.options.reduction_blocks, "FitOptions::reduction_blocks");
  }
  run.program = training_program(run, {.recompute = run.recompute, .canonical = run.canonical.has_value()});
  run.validation = validation_program(run);
  return run;
}

}  // namespace chimera
