#pragma once

// Output of `chimera model`: parameters, FLOPs and bytes of a model's layers and stages, as text, JSON and a picture.
// With --schedule, also the computation and memory of each worker, which may hold several stages. The playground, a web
// page, shows the same JSON.

#include <set>
#include <string>
#include <vector>

#include "core/ids.h"
#include "model_config/config.h"
#include "model_config/footprint.h"
#include "model_config/partition.h"
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

/// Returns [worker]: its footprint. `model` has the FLOPs and bytes of each stage. Stages in `recompute` run their
/// forward again before the backward.
[[nodiscard]] std::vector<WorkerFootprint> worker_footprints(const Schedule& schedule, const StageModel& model,
                                                             const std::set<StageId>& recompute = {});

/// Returns `worker.stages` as numbers.
[[nodiscard]] std::vector<std::int64_t> stages_of(const WorkerFootprint& worker);

/// Everything that one call of `chimera model` describes.
struct ModelSummary {
  ModelConfig model;
  std::vector<StageLayers> partition;  // [stage]: its layers
  Workload workload;                   // micro-batch size, sequence and bytes per element
  DataType dtype;
  OptimizerKind optimizer;
  std::vector<WorkerFootprint> workers = {};  // [worker] of --schedule; empty without it
};

/// Returns a table of layers, a table of stages, memory bars, and a table of workers.
[[nodiscard]] std::string model_text(const ModelSummary& report);
/// Returns the same with exact sizes, as JSON; docs/footprint.md lists the fields.
[[nodiscard]] std::string model_json(const ModelSummary& report);
/// Returns the memory bars as SVG.
[[nodiscard]] std::string model_svg(const ModelSummary& report);

/// Returns costs for `chimera simulate --costs`, with times in units of 10^9 FLOPs.
[[nodiscard]] CostModel flop_costs(const ModelSummary& report);

}  // namespace chimera
