#pragma once
// --partition: how a model is to be cut into the stages of a schedule.

#include <string>
#include <vector>

#include "model_config/config.h"
#include "model_config/footprint.h"
#include "model_config/partition.h"
#include "schedule/schedule.h"

namespace chimera {

/// What a partition by name depends on beyond its name.
struct PartitionProblem {
  const Schedule& schedule;
  const ModelConfig& model;
  Workload workload;       // of full micro-batches
  bool recompute = false;  // all stages run forward again
};

/// `even`: even_partition(); `balanced`: by FLOPs, see balance() (the cut of the shortest simulated step without
/// messages found by ranking some 4 million ops, or a few cuts of a long schedule); or the blocks of each stage,
/// `8,9,9,6`. Depends on nothing but its arguments, so that all ranks find the same. Throws ConfigError for anything
/// else, and for more stages than layers.
[[nodiscard]] std::vector<StageLayers> named_partition(const std::string& name, const PartitionProblem& problem);

}  // namespace chimera
