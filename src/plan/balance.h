#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "model_config/config.h"
#include "model_config/footprint.h"
#include "plan/predict.h"
#include "schedule/schedule.h"
#include "simulate/costs.h"

// A candidate's stages cut anew, with the times of the machine at hand.

// Cutting a model into stages such that no worker is slower than it must be, and none lacks memory.

namespace chimera {

/// The layers of each stage that balance() finds for the candidate's schedule with the machine's
/// times and the problem's memory, by an effort of some 10^5 simulated ops; none where that is the even cut, or nothing
/// fits.
[[nodiscard]] std::optional<PartitionChoice> balanced_cut(Predictor& predictor, const Candidate& candidate);

/// What one layer adds to a stage: times of a full micro-batch, in any unit, and bytes.
struct LayerLoad {
  double forward = 0;
  double input_gradient = 0;
  double weight_gradient = 0;
  double weights = 0;      // one version of one copy
  double state = 0;        // gradients and optimizer state of one copy
  double activations = 0;  // of a full micro-batch, from F to B or I; its input not included
  double deferred = 0;     // of these, what is kept from I to W
};

/// All layers of a model, and what is between stages.
struct ModelLoads {
  LayerLoad embedding;            // always on the first stage
  std::vector<LayerLoad> blocks;  // [L]
  LayerLoad head;                 // always on the last stage
  double boundary = 0;            // bytes of the input of a stage other than the first, for a full micro-batch
};

/// Loads by arithmetic: times are FLOPs, bytes those of the footprint. For a schedule whose micro-batches have
/// `micro_batch_scale`, `workload` is that of a full one.
[[nodiscard]] ModelLoads flop_loads(const ModelConfig& model, const Workload& workload);

/// Times of stages of these numbers of blocks, as simulate() takes them. Requires as many blocks as there are.
[[nodiscard]] CostModel stage_costs(const ModelLoads& loads, const std::vector<std::int64_t>& layers,
                                    bool recompute = false);

struct BalanceOptions {
  double memory = std::numeric_limits<double>::infinity();  // bytes that a worker has
  bool recompute = false;          // stages keep their inputs alone and run forward again before B or I
  double tolerance = 0.1;          // how much slower than necessary the slowest worker of a candidate may be
  std::int64_t candidates = 1000;  // that are ranked, at most, before the best is improved step by step
  std::int64_t steps = 20;         // at most: each ranks all ways to move one block to another stage
};

/// A cut and what it is worth.
struct Balance {
  std::vector<std::int64_t> layers;  // [stage]: its blocks, at least one
  double slowest = 0;                // time of all ops of the worker that has most to do
  double least = 0;                  // the smallest that `slowest` can be in this memory
  double rank = 0;                   // of the cut: what was minimised, without more: the simulated makespan
  bool exact = true;                 // whether `least` is proven: the search ended before its limit on steps
  bool all_ranked = true;            // whether every candidate within the tolerance was ranked
};

/// What a cut with so many blocks on each stage is ranked by; less is better, infinity rules it out.
using CutRanking = std::function<double(const std::vector<std::int64_t>& layers)>;

/// The best cut into the schedule's stages found, for its placement.
///
/// What must balance is a worker: all stages that it holds, each with the micro-batches that it runs of it. With
/// Chimera (f = 1) that is the pair of stages w and D-1-w, so the bound is that of pairs: the first half of the stages
/// may be short and the second long. `least` is found by bisection over the time a worker may take; whether a cut stays
/// below it is decided stage by stage, leaving a branch where the layers that are left fit nowhere and where the same
/// was seen to fail before: exact, and without dead ends where all blocks are alike. Equal loads of the workers are not
/// equal makespans, as unequal stages wait for each other: so all cuts within `tolerance` of `least`, up to
/// `candidates` of them, and the even cut are ranked, and the best is improved by moving single blocks between stages
/// until that gains nothing.
///
/// A worker needs its weights (as many versions as the schedule keeps), gradients, optimizer state and, at every op,
/// the activations that are then in flight on it; messages are not counted, a ranking may add them. Every stage has at
/// least one block: with none it would still be a message away from its neighbours, and runtime and even cut have none.
///
/// None where no cut fits in the memory. Throws ConfigError where there are fewer blocks than stages, or a load is
/// negative or not finite.
[[nodiscard]] std::optional<Balance> balance(const Schedule& schedule, const ModelLoads& loads,
                                             const BalanceOptions& options = {});
[[nodiscard]] std::optional<Balance> balance(const Schedule& schedule, const ModelLoads& loads,
                                             const BalanceOptions& options, const CutRanking& rank);

}  // namespace chimera
