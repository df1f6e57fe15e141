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

// Cuts a model into stages so that workers have equal loads and enough memory.

namespace chimera {

/// Returns the partition that balance() finds with the machine's times and the problem's memory, in about 10^5
/// simulated ops. Empty if nothing fits or the result equals the candidate's own partition.
[[nodiscard]] std::optional<PartitionChoice> balanced_cut(Predictor& predictor, const Candidate& candidate);

/// Load of a layer: times of a full micro-batch in any unit, and bytes.
struct LayerLoad {
  double forward = 0;
  double input_gradient = 0;
  double weight_gradient = 0;
  double weights = 0;      // bytes per version and copy
  double state = 0;        // gradients and optimizer state per copy
  double activations = 0;  // kept from F to B or I for a full micro-batch, without the layer's input
  double deferred = 0;     // part of `activations` that is kept from I to W
};

struct ModelLoads {
  LayerLoad embedding;            // always on the first stage
  std::vector<LayerLoad> blocks;  // [L]
  LayerLoad head;                 // always on the last stage
  double boundary = 0;            // bytes of a later stage's input for a full micro-batch
};

/// Returns loads with FLOPs as times and bytes from footprints. `workload` describes a full micro-batch.
[[nodiscard]] ModelLoads flop_loads(const ModelConfig& model, const Workload& workload);

/// Returns the costs of stages with `layers` blocks each, which must sum to the number of blocks.
[[nodiscard]] CostModel stage_costs(const ModelLoads& loads, const std::vector<std::int64_t>& layers,
                                    bool recompute = false);

struct BalanceOptions {
  double memory = std::numeric_limits<double>::infinity();  // bytes per worker
  bool recompute = false;          // stages keep only their inputs and run forward again before B or I
  double tolerance = 0.1;          // accepted excess of the slowest worker's time over the minimum
  std::int64_t candidates = 1000;  // cuts to rank at most before the local improvement
  std::int64_t steps = 20;         // improvement steps at most; each ranks every move of a single block
};

struct Balance {
  std::vector<std::int64_t> layers;  // [stage]: number of blocks, at least 1
  double slowest = 0;
  double least = 0;        // minimum of `slowest` in this memory
  double rank = 0;         // minimized value; by default the simulated makespan
  bool exact = true;       // whether `least` is proven: the search ended before its step limit
  bool all_ranked = true;  // whether every cut within the tolerance was ranked
};

/// Ranks a cut given its blocks per stage. Smaller is better; infinity excludes the cut.
using CutRanking = std::function<double(const std::vector<std::int64_t>& layers)>;

/// Returns the best cut found for the schedule's placement; empty if no cut fits in memory.
///
/// A worker's load is the sum over its stages; Chimera with f = 1 balances pairs of stages w and D-1-w. `least` is
/// found by bisection with CutSearch. Balanced workers do not guarantee a short makespan, because unequal stages wait
/// for each other. Therefore the even cut and up to `candidates` cuts within `tolerance` of `least` are ranked. Moves
/// of single blocks then improve the best.
///
/// Memory holds weights (all versions), gradients, optimizer state and activations in flight, but not messages. Every
/// stage has at least one block. Throws ConfigError if there are fewer blocks than stages, or a load is negative or not
/// finite.
[[nodiscard]] std::optional<Balance> balance(const Schedule& schedule, const ModelLoads& loads,
                                             const BalanceOptions& options = {});
[[nodiscard]] std::optional<Balance> balance(const Schedule& schedule, const ModelLoads& loads,
                                             const BalanceOptions& options, const CutRanking& rank);

}  // namespace chimera
