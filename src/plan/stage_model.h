#pragma once

#include <vector>

#include "model_config/partition.h"
#include "plan/candidate.h"
#include "simulate/contention.h"
#include "simulate/costs.h"

// A model cut into stages as the simulator wants it: times from a machine profile, bytes from footprints.

namespace chimera {

/// The costs of a schedule's ops in seconds and bytes, and what ops take beside what they keep.
struct StageModel {
  CostModel costs;
  std::vector<StageFootprint> footprints;  // [S], of the schedule's own micro-batches; with tensor parallelism of one
                                           // of the T workers
  std::vector<LayerTime> tensor_sums;      // [S]: the part of the costs that sums within ops are, over T workers
  double step_seconds = 0;                 // that a step takes beyond its ops, messages, sums and updates
  NodesOfGroup nodes = {};                 // empty: all workers are on one
  double computing_share_of_sums = 1;      // of their time: what they would take on one node
};

/// The candidate's costs; `partition` has one entry for each stage of `schedule`, which is the candidate's.
///
/// Ranks are numbered as `chimera train` does it (copies of a worker side by side), nodes filled one after the other:
/// messages count as between nodes as soon as the workers are on several, sums where any of a stage's copies are.
/// The T workers that share a
/// stage are neighbours, and each has its part of all other costs (tensor_parallel.h). Where optimizer state is
/// sharded, the update of a stage is shared by its r copies, and handing its parts around takes half as long as a sum.
/// Throws ConfigError as layer_time() and stage_footprint() do.
[[nodiscard]] StageModel stage_model(const PlanProblem& problem, const Candidate& candidate, const Schedule& schedule,
                                     const std::vector<StageLayers>& partition);

/// Footprints, memory and message buffers alone, without times. `workload` is that of a full micro-batch.
[[nodiscard]] StageModel stage_bytes(const ModelConfig& model, const std::vector<StageLayers>& partition,
                                     const Schedule& schedule, Workload workload);

/// Whether the problem's workers have to share cores.
[[nodiscard]] bool shares_cores(const PlanProblem& problem);

}  // namespace chimera
