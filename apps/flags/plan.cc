#include "flags/plan.h"

#include <fmt/format.h>
#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "core/reject.h"
#include "flags/values.h"
#include "help.h"
#include "hugging_face/model_folder.h"
#include "model_config/parameters.h"
#include "program.h"

namespace chimera::apps {

void PlanFlags::add_to(CLI::App& app) {
  begin_group(app, heading::kModel);
  complete_names(app.add_option("--model", model,
                                "preset (see `chimera model --help`), TOML file or Hugging Face folder (default "
                                "gpt2-mini)")
                     ->type_name("NAME"),
                 preset_names());
  add_model_fields(app, fields);
  app.add_flag("--with-dropout", dropout, "train with dropout, which keeps attention probabilities in memory");
  begin_group(app, heading::kPlanning);
  add_path(app, "--machine", machine,
           "machine profile: a file of `chimera profile`, or a shipped one such as h100-80gb");
  add_count(app, "--workers", workers, "total number of workers (P = W x D)");
  add_count(app, "--mini-batch", mini_batch, "sequences per step over all workers");
  add_number(app, "--memory", memory, "memory of a worker in GiB (default: from the machine profile)");
  add_count(app, "--sequence", sequence,
            "tokens per sequence (default 128, or what the model can attend to; above 1 B parameters: all of it)");
  begin_group(app, heading::kOptimization);
  add_choice(app, "--dtype", dtype,
             "type of computation; bfloat16: mixed precision with float32 master weights (default float32; above 1 B "
             "parameters: bfloat16)");
  add_choice(app, "--optimizer", optimizer, "optimizer whose state takes memory (default adamw)");
  app.add_flag("--shard-optimizer", shard_optimizer, "shard optimizer state over the replicas of a stage (ZeRO-1)");
  add_choice(app, "--sync", sync, "when workers launch the gradient all-reduces (default eager-opt)");
}

PlanProblem PlanFlags::problem() const {
  const auto require = [](const char* flag, std::int64_t value, std::int64_t most) {
    if (value == 0) reject("{} is missing", flag);
    require_between(flag, value, 1, most);
  };
  require("--workers", workers, 1'000'000);
  require("--mini-batch", mini_batch, 1'000'000'000);
  if (sequence) require_between("--sequence", *sequence, 1, 1'000'000'000);
  if (machine.empty()) {
    throw ConfigError("--machine is missing; `chimera profile` writes one, and h100-80gb is one of those shipped");
  }
  PlanProblem problem;
  problem.model = with_overrides(find_model_or_folder(model), fields);
  problem.machine = read_machine(machine_file(machine));
  problem.workers = workers;
  problem.mini_batch = mini_batch;
  problem.memory_bytes = memory > 0 ? memory * kGiB : problem.machine.memory_bytes;
  if (problem.memory_bytes <= 0) throw ConfigError("--memory is missing, and the machine's profile has none");
  problem.workload = workload_of(dtype_for(problem.model), optimizer, sequence_for(problem.model));
  problem.workload.dropout = dropout;
  // A profile without cores is one of GPUs.
  if (problem.machine.cores == 0) problem.workload.logits_of_chunk = kLogitsOfGpuChunk;
  problem.sync = sync;
  problem.shard_optimizer = shard_optimizer;
  return problem;
}

namespace {

bool is_large(const ModelConfig& config) { return parameter_count(config) > 1'000'000'000; }

}  // namespace

std::int64_t PlanFlags::sequence_for(const ModelConfig& config) const {
  constexpr std::int64_t kShort = 128;
  if (sequence) return *sequence;
  const std::int64_t most = std::min(config.positions, config.sliding_window.value_or(config.positions));
  return is_large(config) ? most : std::min(kShort, most);
}

DataType PlanFlags::dtype_for(const ModelConfig& config) const {
  return dtype.value_or(is_large(config) ? DataType::BFloat16 : DataType::Float32);
}

std::vector<TrainFlag> PlanFlags::workload_flags(const PlanProblem& problem) const {
  std::vector<TrainFlag> flags = {{std::filesystem::is_directory(model) ? "from" : "model", model}};
  if (fields.layers) flags.push_back({"layers", *fields.layers});
  if (fields.hidden) flags.push_back({"hidden", *fields.hidden});
  if (fields.heads) flags.push_back({"heads", *fields.heads});
  if (fields.key_value_heads) flags.push_back({"key-value-heads", *fields.key_value_heads});
  if (fields.vocabulary) flags.push_back({"vocabulary", *fields.vocabulary});
  if (fields.tied) flags.push_back({"tied", std::string(*fields.tied ? "true" : "false")});
  flags.push_back({"sequence", problem.workload.sequence});
  flags.push_back({"dtype", to_text(dtype_for(problem.model))});
  flags.push_back({"optimizer", to_text(optimizer)});
  if (problem.machine.cores == 0) flags.push_back({"device", to_text(DeviceKind::Cuda)});
  return flags;
}

void add_stage_choices(CLI::App& app, StageChoice& recompute, StageChoice& offload, const char* usual) {
  add_text(
      app, "--recompute", [&recompute](const std::string& text) { recompute = parse_stages(kRecomputeFlag, text); },
      "none|attention|full|auto|N,N",
      fmt::format("activation checkpointing of stages: none, full, a list such as 0,1, or auto: only the stages that "
                  "need it to fit in memory; attention: only the attention sub-layers of all stages (default {})",
                  usual));
  add_text(
      app, "--offload", [&offload](const std::string& text) { offload = parse_stages(kOffloadFlag, text); },
      "none|full|auto|N,N",
      "keep activations of stages in host memory between forward and backward: none, full, a list such as 0,1, or "
      "auto: only the stages that need it to fit in memory (default none)");
}

}  // namespace chimera::apps
