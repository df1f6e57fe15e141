#pragma once

// Divides a model into stages. Layers take different times, most of all embedding and head, so stages with equal
// numbers of layers can leave workers idle. balance() searches for a partition whose workers have nearly equal loads
// and enough memory. resolve_partition() applies the rule that a user selects with --partition. Both are deterministic,
// so that all ranks compute the same stages.

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "plan/model_loads.h"
#include "schedule/schedule.h"

namespace chimera {

/// Options of the search. Here a cut is a partition: the number of blocks of each stage.
struct BalanceOptions {
  double memory = std::numeric_limits<double>::infinity();  // bytes per worker
  bool recompute = false;          // stages keep only their inputs and run forward again before B or I
  double tolerance = 0.1;          // accepted excess of the slowest worker's time over the minimum
  std::int64_t candidates = 1000;  // maximum number of cuts to simulate before the local improvement
  std::int64_t steps = 20;         // maximum number of improvements; each simulates every move of a single block
};

/// A partition that balance() found. Times are in the unit of the loads.
struct Balance {
  std::vector<std::int64_t> layers;  // [stage]: number of blocks, at least 1
  double slowest = 0;
  double least = 0;                                       // minimum of `slowest` in this memory
  double rank = 0;                                        // minimized value: the simulated makespan
  double even = std::numeric_limits<double>::infinity();  // rank of the even cut; infinity if it does not fit
  bool exact = true;  // whether `least` is proven: the search ended before its step limit
};

/// Returns `options` with fewer candidates and steps, so that each of the two simulates at most about `ops` ops.
[[nodiscard]] BalanceOptions limit_ops(BalanceOptions options, const Schedule& schedule, std::int64_t ops);

/// Returns the best cut found for the schedule's placement, or nothing if no cut fits in memory.
///
/// A worker's load is the sum over its stages; in Chimera with f = 1, worker w has stages w and D-1-w. The search has
/// three parts. First, bisection finds `least`. Workers with equal loads do not guarantee a short makespan, because
/// unequal stages wait for each other. Therefore the search then simulates the even cut, and up to `candidates` cuts
/// whose slowest worker takes at most (1 + tolerance) x `least`. Finally, moves of single blocks improve the best cut.
///
/// Memory holds weights (all versions), gradients, optimizer state and activations in flight, but not messages. Every
/// stage has at least one block. Throws ConfigError if there are fewer blocks than stages, or a load is negative or not
/// finite.
[[nodiscard]] std::optional<Balance> balance(const Schedule& schedule, const ModelLoads& loads,
                                             const BalanceOptions& options = {});

struct PartitionProblem {
  const Schedule& schedule;
  const ModelConfig& model;
  Workload workload;                                        // full micro-batches
  bool recompute = false;                                   // all stages recompute
  double flops_per_byte = 0;                                // of the device, for flop_loads()
  std::optional<ModelLoads> loads = {};                     // by a machine profile; empty: by FLOPs and bytes
  double memory = std::numeric_limits<double>::infinity();  // bytes per worker, for Auto
};

/// Auto keeps even stages unless others are faster by this factor: an estimate by FLOPs is not exact.
inline constexpr double kFasterThanEven = 1.03;

/// Returns the stages. Even: even_partition(). Balanced: balance() by `loads` or FLOPs and bytes, and simulation
/// without messages, with about 4 million simulated ops. Auto: the same with fewer ops, if it fits in memory and is
/// faster than even stages by kFasterThanEven or these do not fit; else even. Listed: explicit_partition().
/// Deterministic, so that all ranks compute the same result. Throws ConfigError if there are more stages than layers.
[[nodiscard]] std::vector<StageLayers> resolve_partition(const PartitionChoice& choice,
                                                         const PartitionProblem& problem);

}  // namespace chimera
