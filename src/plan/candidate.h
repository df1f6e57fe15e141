#pragma once

// Input of the planner (PlanProblem), and one configuration that it considers (Candidate). A candidate has everything
// that `chimera train` needs: the schedule and its shape, the number of data-parallel groups, the micro-batch size, the
// partition of layers into stages, and the stages that recompute or offload activations. plan/enumerate.h lists the
// candidates of a problem, plan/predict.h predicts time and memory of each, and plan/plan.h ranks them.

#include "generate/registry.h"
#include "model_config/config.h"
#include "model_config/footprint.h"
#include "plan/machine.h"
#include "plan/stage_choice.h"
#include "schedule/place_all_reduces.h"
#include "schedule/rank_layout.h"
#include "schedule/schedule.h"

namespace chimera {

/// Measured times and sizes of a layer of a user's own model (a PyTorch module, not one of this project's families).
struct OwnLayer {
  std::vector<LayerTime> times = {};  // for ascending micro-batch sizes, at least one
  double weights = 0;                 // bytes of the weights
  double state = 0;                   // bytes of gradients and optimizer state
  double activations = 0;             // bytes per sample that are kept for backward
  double output = 0;                  // bytes per sample of the layer's output
};

/// What to plan: a model, a machine and the number of its workers, and the mini-batch.
struct PlanProblem {
  ModelConfig model;
  // Layers of a user's own model; empty: the layers of `model`. If not empty, only name and number of layers of `model`
  // are used, and "sequences" below are samples.
  std::vector<OwnLayer> layers = {};
  MachineProfile machine;
  std::int64_t workers = 1;     // ranks of the run, P = W D T of a Candidate
  std::int64_t mini_batch = 1;  // sequences per step over all workers
  double memory_bytes = 0;      // bytes of memory per rank
  std::string network = {};     // --network, already applied to `machine`; empty: links of its profile
  Workload workload;            // sequence length, types, ...; the micro-batch size is ignored
  AllReducePlacement sync = AllReducePlacement::EagerOpt;  // --sync: when all-reduces of gradients start
  bool blocking_sends = false;   // whether a worker waits until each message that it sends has arrived
  bool shard_optimizer = false;  // --shard-optimizer
  bool second_shards = false;    // Two ranks update each shard (--recover twin or reroute)
};

/// A configuration: W data-parallel groups, each of which runs a pipeline of D workers with N micro-batches of b
/// sequences. With tensor parallelism, T ranks share the work of each worker.
struct Candidate {
  std::string schedule = kDefaultSchedule;
  PipelineShape shape = {};           // D, N = mini-batch / (W b), and other parameters of the schedule
  std::int64_t data_parallel = 1;     // W
  std::int64_t micro_batch_size = 1;  // b
  std::int64_t tensor_parallel = 1;   // T
  PartitionChoice partition = {};
  std::set<StageId> recompute = {};
  std::set<StageId> offload = {};
  bool shard_optimizer = false;     // as PlanProblem::shard_optimizer, which holds for all candidates
  StageChoice blocks = {};          // Blocks that recompute, if counts_blocks(); `recompute` is then empty
  StageChoice offload_blocks = {};  // If Counted: only these blocks of the stages in `offload`
  ReplicaLayout replica_layout = ReplicaLayout::Near;  // Near: copies of a worker have adjacent ranks
};

/// Returns a short description that omits defaults: `chimera W 8 x D 4, 8 micro-batches of 8`.
[[nodiscard]] std::string describe(const Candidate& candidate);

/// Returns the number of stages of the model, which exceeds D if a worker has several stages of one pipeline.
[[nodiscard]] std::int64_t num_stages(const Candidate& candidate);

/// Returns the value of --recompute for this candidate.
[[nodiscard]] StageChoice recompute_choice(const Candidate& candidate);

/// Returns the value of --offload for this candidate.
[[nodiscard]] StageChoice offload_choice(const Candidate& candidate);

/// Returns whether workers compete for cores: the workers of a node together have more threads than the node has cores.
[[nodiscard]] bool shares_cores(const PlanProblem& problem);

}  // namespace chimera
