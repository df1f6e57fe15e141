#pragma once

// Converts a candidate on a machine to the input of the simulator: a CostModel with times and bytes of each stage. The
// time of a stage is the sum of the times of its layers (layer_times.h), divided among T workers with tensor
// parallelism. Bytes come from footprints (model_config/footprint.h). Times of messages and all-reduces depend on which
// ranks are on the same node (StageLinks in stage_model.cc). The planner calls stage_model(); training calls only
// stage_bytes().

#include <array>
#include <set>

#include "model_config/partition.h"
#include "plan/candidate.h"
#include "plan/layer_times.h"
#include "simulate/contention.h"
#include "simulate/costs.h"

namespace chimera {

/// Bytes of activations that a block saves at a level of recomputation, and extra time of its backward, per full
/// micro-batch. Without a machine, the time is in FLOPs.
struct BlockSaving {
  double freed = 0;
  double seconds = 0;
};

/// Costs of the stages of a candidate. S is the number of stages, T the number of ranks that share a worker's layers
/// (tensor parallelism).
struct StageModel {
  CostModel costs;
  std::vector<StageFootprint> footprints;   // [S], for a micro-batch of the schedule, on one of the T ranks
  std::vector<LayerTime> tensor_sums;       // [S]: part of the times in `costs`: all-reduces among the T ranks
  std::array<BlockSaving, 4> savings = {};  // [RecomputeLevel]; all 0 for a user's own layers
  std::vector<double> gathers = {};    // [S]: part of the update times in `costs`: all-gathers of sharded parameters
  double step_seconds = 0;             // seconds of overhead per step; not the time of a step
  double reserved_bytes = 0;           // bytes of each worker's memory that hold no tensors
  NodePlacement nodes = {};            // Empty: all workers are on one node
  double computing_share_of_sums = 1;  // fraction of the all-reduces' time that uses cores, 0 to 1
};

/// Returns the costs of the candidate's `schedule`. `partition` has the layers of each of its stages, and the levels of
/// their blocks.
///
/// Ranks are numbered as in RankLayout (schedule/rank_layout.h) and fill the nodes in order. Messages between stages s
/// and s+1 use the links between nodes if, in any replica or data-parallel group, their workers are on different nodes.
/// If this is so for any pair of stages, all messages get the alpha (latency) of these links. An all-reduce uses them
/// if its workers are on several nodes. The T ranks of a worker have consecutive numbers and divide its costs
/// (layer_times.h). If the optimizer is sharded, the ranks that hold a stage each update an equal part of it, and
/// the reduce-scatter of gradients and the all-gather of parameters each take half the time of an all-reduce. With the
/// optimizer Muon, the time of an update includes the Newton-Schulz iterations of the rank that has most of them, and
/// the all-gather of their results. Throws ConfigError if the profile lacks times for a layer, or the workload does not
/// fit the model.
[[nodiscard]] StageModel stage_model(const PlanProblem& problem, const Candidate& candidate, const Schedule& schedule,
                                     const std::vector<StageLayers>& partition);

/// Returns the fraction of a micro-batch's computing time that is attention (scores and weighted means), for the
/// problem's model and machine.
[[nodiscard]] double attention_time_share(const PlanProblem& problem, std::int64_t micro_batch_size);

/// Returns [slices + 1]: the first token of each slice of a micro-batch, and the number of tokens, so that the slices
/// take about equal times on the problem's machine.
[[nodiscard]] std::vector<std::int64_t> planned_slices(const PlanProblem& problem, std::int64_t micro_batch_size,
                                                       std::int64_t slices);

/// Returns a StageModel in which only the bytes are set, and no times. `partition` has the levels of blocks. Slices are
/// those of balanced_slices() (model_config/footprint.h). `workload` describes a full micro-batch. `flops_per_byte`:
/// FLOPs in the time of moving a byte, for `savings`.
[[nodiscard]] StageModel stage_bytes(const ModelConfig& model, const std::vector<StageLayers>& partition,
                                     const Schedule& schedule, Workload workload,
                                     double flops_per_byte = kFlopsPerByteOfCpu);

/// Returns [S]: the bytes of activations that each stage would offload per full micro-batch (OffloadCosts::bytes).
/// `micro_batch_scale` is Schedule::micro_batch_scale. A stage in `recompute` keeps, and offloads, only its input.
[[nodiscard]] std::vector<double> offloadable_bytes(const StageModel& model, double micro_batch_scale,
                                                    const std::set<StageId>& recompute);

}  // namespace chimera
