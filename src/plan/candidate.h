#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "generate/registry.h"
#include "model_config/config.h"
#include "model_config/footprint.h"
#include "plan/machine.h"
#include "plan/recompute_choice.h"
#include "schedule/place_all_reduces.h"
#include "schedule/rank_layout.h"
#include "schedule/schedule.h"

// What the planner chooses among, and for whom.

namespace chimera {

/// A layer of a user's own model, as it was measured.
struct OwnLayer {
  std::vector<LayerTime> times = {};  // ascending micro-batch sizes, at least one
  double weights = 0;                 // bytes; gradients have as many
  double state = 0;                   // bytes of gradients and optimizer state
  double activations = 0;             // bytes that it saves of a sample for its backward
  double output = 0;                  // bytes that it gives for a sample
};

/// What is the same for all candidates.
struct PlanProblem {
  ModelConfig model;
  std::vector<OwnLayer> layers = {};  // not empty: these in place of the model's, of which only name and number of
                                      // layers count then; sequences are samples
  MachineProfile machine;
  std::int64_t workers = 1;     // P
  std::int64_t mini_batch = 1;  // sequences of a step over all workers
  double memory_bytes = 0;      // that a worker has
  Workload workload;            // its micro-batch size means nothing
  AllReducePlacement sync = AllReducePlacement::EagerOpt;
  bool blocking_sends = false;   // workers wait until what they send has arrived
  bool shard_optimizer = false;  // optimizer state once over the copies of a stage
};

/// One way to train: W groups of D workers (of D times T, where T workers share each stage), N micro-batches of b
/// sequences in each.
struct Candidate {
  std::string schedule = kDefaultSchedule;
  PipelineShape shape = {};  // N = mini-batch / (W b)
  std::int64_t data_parallel = 1;
  std::int64_t micro_batch_size = 1;
  std::int64_t tensor_parallel = 1;  // T, workers that share each stage's layers: for plans, nothing trains so
  PartitionChoice partition = {};
  std::set<StageId> recompute = {};  // stages that run their forward again
  ReplicaLayout replica_layout = ReplicaLayout::Near;
};

/// `chimera  W 8 x D 4, 8 micro-batches of 8`: a candidate in a few words, what is as usual left out.
[[nodiscard]] std::string in_words(const Candidate& candidate);

/// Stages that the candidate cuts the model into.
[[nodiscard]] std::int64_t num_stages(const Candidate& candidate);

}  // namespace chimera
