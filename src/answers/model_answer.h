#pragma once

// `chimera model`: the request, and its answer: parameters, FLOPs and bytes of a model's layers and stages, as text,
// JSON and a picture. With --schedule, also the computation and memory of each worker, which may hold several stages.
// The playground, a web page, shows the same JSON.

#include "answers/door.h"
#include "answers/schedule_request.h"
#include "model_config/config.h"
#include "model_config/footprint.h"
#include "model_config/partition.h"
#include "plan/stage_choice.h"
#include "plan/stage_model.h"
#include "schedule/schedule.h"
#include "simulate/costs.h"

namespace chimera {

/// Computation and memory of one worker of --schedule.
struct WorkerFootprint {
  std::vector<StageId> stages = {};  // ascending
  double flops = 0;                  // FLOPs of its ops in a step, with recomputation
  double held_bytes = 0;             // bytes of weights, gradients and optimizer state
  double peak_bytes = 0;             // held_bytes and the peak of activations, messages and temporary tensors of an op
};

/// Everything that one call of `chimera model` describes.
struct ModelAnswer {
  ModelConfig model;
  std::vector<StageLayers> partition;  // [stage]: its layers
  Workload workload;                   // micro-batch size, sequence and bytes per element
  DataType dtype;
  OptimizerKind optimizer;
  std::vector<WorkerFootprint> workers = {};  // [worker] of --schedule; empty without it
  StageChoice recompute = {};                 // --recompute; with --schedule, `auto` is replaced by the choice
  std::set<StageId> recomputing = {};         // stages that recompute all blocks; `partition` says it for single blocks
};

/// Returns a table of layers, a table of stages, memory bars, and a table of workers.
[[nodiscard]] std::string model_text(const ModelAnswer& report);
/// Returns the same with exact sizes, as JSON; docs/footprint.md lists the fields.
[[nodiscard]] std::string model_json(const ModelAnswer& report);
/// Returns the memory bars as SVG.
[[nodiscard]] std::string model_svg(const ModelAnswer& report);

/// Declares to `door` the fields that change single numbers of a preset model.
void visit_overrides(Door& door, ModelOverrides& overrides);

/// Finds a preset, also by the beginning of its name. Throws ConfigError for other names.
[[nodiscard]] ModelConfig find_preset(const std::string& name);

/// The request of `chimera model`.
struct ModelRequest {
  std::string model;  // name for `find`; required
  /// Finds a model by its name. Callers with files replace it.
  std::function<ModelConfig(const std::string& name)> find = find_preset;
  ModelOverrides overrides = {};
  bool dropout = false;  // whether training drops activations
  std::int64_t micro_batch_size = 4;
  std::optional<std::int64_t> sequence = {};  // default: 128, or as many as the model can attend to
  DataType dtype = DataType::Float32;
  OptimizerKind optimizer = OptimizerKind::AdamW;
  PartitionChoice partition = {};
  StageChoice recompute = {};
  double memory_bytes = 0;   // limit of a worker, for --recompute auto: with 0, all stages recompute
  ScheduleRequest schedule;  // places stages on workers; one stage and as many micro-batches as stages by default

  void visit(Door& door);
};

/// Computes the answer. Throws ConfigError or ScheduleError for an invalid request.
[[nodiscard]] ModelAnswer answer(const ModelRequest& request);

/// Returns costs for `chimera simulate --costs`, with the recomputation of whole stages; times in units of 10^9 FLOPs.
[[nodiscard]] CostModel costs_of(const ModelAnswer& answer);

}  // namespace chimera
