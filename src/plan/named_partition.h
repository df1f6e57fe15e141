#pragma once
// --partition: how a model is to be cut into the stages of a schedule.

#include <string>
#include <vector>

#include "model_config/config.h"
#include "model_config/footprint.h"
#include "model_config/partition.h"
#include "schedule/schedule.h"

namespace chimera {

/// What a partition depends on beyond the choice.
struct PartitionProblem {
  const Schedule& schedule;
  const ModelConfig& model;
  Workload workload;       // of full micro-batches
  bool recompute = false;  // all stages run forward again
};

/// Even: even_partition(). Balanced: by FLOPs, see balance() (the cut of the shortest simulated step without messages
/// found by ranking some 4 million ops, or a few cuts of a long schedule). Listed: explicit_partition(). Depends on
/// nothing but its arguments, so that all ranks find the same. Throws ConfigError for more stages than layers.
[[nodiscard]] std::vector<StageLayers> named_partition(const PartitionChoice& choice, const PartitionProblem& problem);

}  // namespace chimera
