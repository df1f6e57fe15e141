#pragma once
// What `chimera model` prints: a model's layers and stages, their work and memory.

#include <string>
#include <vector>

#include "model_config/config.h"
#include "model_config/footprint.h"
#include "model_config/partition.h"
#include "simulate/costs.h"

namespace chimera {

/// A cut model and what it is run on.
struct ModelReport {
  ModelConfig model;
  std::vector<StageLayers> partition;
  Workload workload;
  DataType dtype;
  OptimizerKind optimizer;
};

/// Tables of layers and of stages, and a bar of memory for each stage.
[[nodiscard]] std::string model_text(const ModelReport& report);
/// All sizes in full. Fields: docs/footprint.md.
[[nodiscard]] std::string model_json(const ModelReport& report);
/// The bars as a picture.
[[nodiscard]] std::string model_svg(const ModelReport& report);

/// The costs as `chimera simulate --costs` reads them; times are 10^9 FLOPs.
[[nodiscard]] CostModel flop_costs(const ModelReport& report);

}  // namespace chimera
