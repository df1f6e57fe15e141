#pragma once

// Costs of a candidate's stages, as the simulator reads them. Times of a stage are the sum over its layers on the
// machine (layer_times.h), divided among T workers (tensor_parallel.h); bytes come from footprints
// (model_config/footprint.h); messages and all-reduces from the nodes of the ranks (stage_links.h). Training asks
// only for the bytes (stage_bytes).

#include <set>
#include <vector>

#include "model_config/partition.h"
#include "plan/candidate.h"
#include "simulate/contention.h"
#include "simulate/costs.h"

namespace chimera {

struct StageModel {
  CostModel costs;
  std::vector<StageFootprint> footprints;  // [S], for the schedule's micro-batches and each of the T workers
  std::vector<LayerTime> tensor_sums;      // [S]: part of the costs in all-reduces over T workers
  std::vector<double> gathers = {};        // [S]: all-gathers of sharded parameters, part of the updates
  double step_seconds = 0;                 // overhead per step
  double reserved_bytes = 0;               // of each worker's memory, beside its tensors
  NodePlacement nodes = {};                // Empty: all workers are on one node
  double computing_share_of_sums = 1;      // share of all-reduce time that uses cores: their time on a single node
};

/// Returns costs for `partition`, with one entry per stage of the candidate's `schedule`.
///
/// Ranks follow RankLayout and fill nodes in order. A boundary uses links between nodes if its workers are on two nodes
/// in any replica or group; a single such boundary gives all messages the alpha of these links. All-reduces use them if
/// copies are on several nodes. The T workers of a stage are neighbors and divide its costs (tensor_parallel.h). If the
/// optimizer is sharded, each of r copies updates 1/r of the stage; sums and the all-gather each take half the time of
/// an all-reduce. Throws ConfigError as layer_time() and stage_footprint() do.
[[nodiscard]] StageModel stage_model(const PlanProblem& problem, const Candidate& candidate, const Schedule& schedule,
                                     const std::vector<StageLayers>& partition);

/// Returns attention_time_share() of the problem's model on its machine.
[[nodiscard]] double attention_time_share(const PlanProblem& problem, std::int64_t micro_batch_size);

/// Returns [k + 1]: bounds in tokens of slices that take about equal times on the problem's machine.
[[nodiscard]] std::vector<std::int64_t> planned_slices(const PlanProblem& problem, std::int64_t micro_batch_size,
                                                       std::int64_t slices);

/// Returns bytes without times, and slices of balanced_slices(). `workload` describes a full micro-batch.
[[nodiscard]] StageModel stage_bytes(const ModelConfig& model, const std::vector<StageLayers>& partition,
                                     const Schedule& schedule, Workload workload);

/// Returns OffloadCosts::bytes of all stages. A stage in `recompute` has only its input to offload.
[[nodiscard]] std::vector<double> offloadable_bytes(const StageModel& model, double micro_batch_scale,
                                                    const std::set<StageId>& recompute);

}  // namespace chimera
