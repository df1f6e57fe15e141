#pragma once

// `chimera plan`: the planning problem (which schedule, partition and micro-batch size train this model fastest on this
// machine, with these workers, mini-batch and memory?), and the request, which also restricts what is considered.
// plan_answer.h has the answer. `chimera train --plan auto` sets the fields of a ProblemRequest from flags of its own.

#include "answers/door.h"
#include "answers/model_answer.h"
#include "answers/plan_answer.h"
#include "model_config/config.h"
#include "plan/candidate.h"
#include "plan/enumerate.h"
#include "plan/stage_choice.h"
#include "plan/train_flags.h"

namespace chimera {

/// A planning problem.
struct ProblemRequest {
  std::string model = "gpt2-mini";       // name for `find`
  ModelOverrides fields;                 // fields of the model that are changed
  std::vector<OwnLayer> layers = {};     // measured layers of a user's own model, instead of `model`
  std::int64_t workers = 0;              // total of all data-parallel groups; required
  std::int64_t mini_batch = 0;           // sequences per step of all groups; required
  double memory = 0;                     // GiB per worker; 0: `memory_bytes`
  double memory_bytes = 0;               // bytes per worker; 0: memory in the machine profile
  std::string machine;                   // for `load_machine`; required unless there are layers
  std::optional<std::int64_t> sequence;  // empty: the default of sequence_for()
  std::optional<DataType> dtype;         // empty: the default of dtype_for()
  OptimizerKind optimizer = OptimizerKind::AdamW;
  AllReducePlacement sync = AllReducePlacement::EagerOpt;  // when a worker starts to sum gradients
  std::optional<Kernels> kernels = {};                     // eager PyTorch kernels or fused ones; empty: eager
  bool dropout = false;                                    // whether training drops activations
  // Whether the replicas of a stage divide its optimizer state (ZeRO stage 1); empty: only if memory is short
  std::optional<bool> shard_optimizer = {};
  std::string network = {};  // rate between nodes, such as 200Gb/s; empty: as in the machine profile
  /// Finds a model by its name, and reads the profile of a machine: by default a preset, and JSON text. Callers with
  /// files replace both.
  std::function<ModelConfig(const std::string& name)> find = find_preset;
  std::function<MachineProfile(const std::string& machine)> load_machine = [](const std::string& text) {
    return machine_from_json(text, "machine");
  };

  void visit(Door& door);
  /// Returns the planning problem. Throws ConfigError if a required field is missing or invalid, or if neither the
  /// request nor the profile gives the memory of a worker.
  [[nodiscard]] PlanProblem problem() const;
  /// Returns the given sequence. The default is the longest sequence that the model supports if it has more than 1 B
  /// parameters, else 128 tokens.
  [[nodiscard]] std::int64_t sequence_for(const ModelConfig& config) const;
  /// Returns the given type. The default is bfloat16 if the model has more than 1 B parameters, else float32.
  [[nodiscard]] DataType dtype_for(const ModelConfig& config) const;
};

/// The request of `chimera plan`: the problem, and what the planner considers (PlanOptions in plan/enumerate.h).
struct PlanRequest : ProblemRequest {
  PlanOptions options = {};  // answer() sets its T, partition and may_shard from the other fields
  PlanRule rule = PlanRule::Simulation;
  std::optional<PartitionChoice> partition = {};  // default: balanced
  // Values of T (ranks that share each layer) to consider; absent: usual_tensor_parallel(); an empty list: every T
  std::optional<std::vector<std::int64_t>> tensor_parallel = {};
  PlanQuestions questions = {};  // what the answer adds: an explained row, the Pareto front

  void visit(Door& door);
};

/// Changes the links between nodes to `network`: `<number>Gb/s` of a node's adapter, which its workers share, or
/// `<number>Gb/s-per-gpu`. Messages and all-reduces get nine tenths of it, as in the shipped profiles. Throws
/// ConfigError for other texts.
void set_network(MachineProfile& machine, const std::string& network);

/// Returns the values of T (ranks that share each layer) to consider by default: 1, and on hosts with several devices
/// the divisors of their number.
[[nodiscard]] std::vector<std::int64_t> usual_tensor_parallel(const PlanProblem& problem);

/// Plans as requested. Throws ConfigError for an invalid request, and as analyze_plan() does.
[[nodiscard]] PlanAnalysis answer(const PlanRequest& request);

/// Declares --recompute and --offload to `door`. `usual` describes the default of --recompute in the help.
void visit_stage_choices(Door& door, StageChoice& recompute, StageChoice& offload, const std::string& usual);

}  // namespace chimera
