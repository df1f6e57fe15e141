#pragma once

// Input of the planner (PlanProblem), and one configuration that it considers (Candidate). A candidate has everything
// that `chimera train` needs: the schedule and its shape, the number W of data-parallel groups, the micro-batch size,
// the partition of layers, and the stages that recompute or offload activations. plan/enumerate.h lists the candidates
// of a problem, plan/predict.h predicts time and memory of each, and plan/plan.h ranks them.

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "generate/registry.h"
#include "model_config/config.h"
#include "model_config/footprint.h"
#include "plan/machine.h"
#include "plan/stage_choice.h"
#include "schedule/place_all_reduces.h"
#include "schedule/rank_layout.h"
#include "schedule/schedule.h"

namespace chimera {

/// Measured times and sizes of a layer of a user's own model.
struct OwnLayer {
  std::vector<LayerTime> times = {};  // for ascending micro-batch sizes, at least one
  double weights = 0;                 // bytes; gradients take as many
  double state = 0;                   // bytes of gradients and optimizer state
  double activations = 0;             // bytes per sample that are kept for backward
  double output = 0;                  // bytes per sample of the layer's output
};

struct PlanProblem {
  ModelConfig model;
  // Layers of a user's own model; empty: the layers of `model`. If not empty, only name and number of layers of `model`
  // are used, and "sequences" below are samples.
  std::vector<OwnLayer> layers = {};
  MachineProfile machine;
  std::int64_t workers = 1;     // P
  std::int64_t mini_batch = 1;  // sequences per step over all workers
  double memory_bytes = 0;      // bytes of memory per worker
  Workload workload;            // sequence length, types, ...; the micro-batch size is ignored
  AllReducePlacement sync = AllReducePlacement::EagerOpt;  // --sync: when all-reduces of gradients start
  bool blocking_sends = false;   // whether a worker waits until each message that it sends has arrived
  bool shard_optimizer = false;  // --shard-optimizer
};

/// A configuration: W data-parallel groups of D workers (D T with tensor parallelism), each with N micro-batches of b
/// sequences.
struct Candidate {
  std::string schedule = kDefaultSchedule;
  PipelineShape shape = {};  // N = mini-batch / (W b)
  std::int64_t data_parallel = 1;
  std::int64_t micro_batch_size = 1;
  // T, workers that share each stage's layers; in plans only
  std::int64_t tensor_parallel = 1;
  PartitionChoice partition = {};
  std::set<StageId> recompute = {};
  std::set<StageId> offload = {};
  bool recompute_attention = false;  // Workload::recompute_attention of this candidate
  ReplicaLayout replica_layout = ReplicaLayout::Near;
};

/// Returns a short description that omits defaults: `chimera W 8 x D 4, 8 micro-batches of 8`.
[[nodiscard]] std::string describe(const Candidate& candidate);

[[nodiscard]] std::int64_t num_stages(const Candidate& candidate);

/// Returns the value of --recompute for this candidate.
[[nodiscard]] StageChoice recompute_choice(const Candidate& candidate);

/// Returns the value of --offload for this candidate.
[[nodiscard]] StageChoice offload_choice(const Candidate& candidate);

/// Returns whether the workers of a node together have more threads than the node has cores.
[[nodiscard]] bool shares_cores(const PlanProblem& problem);

}  // namespace chimera
