#pragma once

// The flags of a planning problem: which schedule, partition and micro-batch size train this model fastest on this
// machine, with these workers, mini-batch and memory? `chimera plan` adds all flags with add_to(). `chimera train
// --plan auto` has flags of its own, and copies their values into PlanFlags.

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "flags/model.h"
#include "generate/registry.h"
#include "plan/candidate.h"
#include "plan/stage_choice.h"
#include "plan/train_flags.h"
#include "schedule/schedule.h"

namespace chimera::apps {

/// Values of the flags of a planning problem.
struct PlanFlags {
  std::string model = "gpt2-mini";       // preset, TOML file or Hugging Face folder
  ModelOverrides fields;                 // fields of the model that flags change
  std::int64_t workers = 0;              // total of all data-parallel groups; required
  std::int64_t mini_batch = 0;           // sequences per step of all groups; required
  double memory = 0;                     // GiB per worker; 0: memory in the machine profile
  std::string machine;                   // machine profile: a path, or the name of a shipped profile; required
  std::optional<std::int64_t> sequence;  // empty: the default of sequence_for()
  std::optional<DataType> dtype;         // empty: the default of dtype_for()
  OptimizerKind optimizer = OptimizerKind::AdamW;
  AllReducePlacement sync = AllReducePlacement::EagerOpt;  // when a worker starts to sum gradients
  bool dropout = false;                                    // whether training drops activations
  bool shard_optimizer = false;  // whether the replicas of a stage divide its optimizer state (ZeRO stage 1)

  /// Adds the flags to a command. The object must stay where it is, because the flags write into it.
  void add_to(CLI::App& app);
  /// Returns the planning problem. Throws ConfigError if a required flag is missing, if a flag or the machine profile
  /// is invalid, or if neither --memory nor the profile gives the memory of a worker.
  [[nodiscard]] PlanProblem problem() const;
  /// Returns --sequence. The default is the longest sequence that the model supports if it has more than 1 B
  /// parameters, else 128 tokens.
  [[nodiscard]] std::int64_t sequence_for(const ModelConfig& config) const;
  /// Returns --dtype. The default is bfloat16 if the model has more than 1 B parameters, else float32.
  [[nodiscard]] DataType dtype_for(const ModelConfig& config) const;
  /// Returns flags of `chimera train` for the model, sequence, number type, optimizer and device of the problem, but
  /// not for dropout.
  [[nodiscard]] std::vector<TrainFlag> workload_flags(const PlanProblem& problem) const;
};

/// Adds --recompute and --offload, which select stages: those whose forward runs again before the backward, and those
/// whose activations wait for the backward in host memory. `usual` describes the default of --recompute in --help.
void add_stage_choices(CLI::App& app, StageChoice& recompute, StageChoice& offload, const char* usual);

}  // namespace chimera::apps
