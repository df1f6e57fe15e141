#pragma once

// Divides a model into stages. The model is an embedding, a list of blocks, and a head. Embedding and head take
// other times than a block, so stages with equal numbers of blocks can leave workers idle. balance() searches for a
// partition (the number of blocks of each stage) whose workers have nearly equal loads and enough memory.
// resolve_partition() applies the rule that a user selects with --partition. Both are deterministic, so that all ranks
// compute the same stages.

#include <limits>

#include "plan/model_loads.h"
#include "schedule/schedule.h"

namespace chimera {

/// Options of balance(). A *cut* is a partition that the search considers. The *even* cut has equally many blocks on
/// all stages, or one more on some.
struct BalanceOptions {
  double memory = std::numeric_limits<double>::infinity();  // bytes per worker
  bool recompute = false;          // stages keep only their inputs and run forward again before the backward
  double tolerance = 0.1;          // accepted excess of the slowest worker's time over the minimum
  std::int64_t candidates = 1000;  // maximum number of cuts to simulate before the local improvement
  std::int64_t steps = 20;  // maximum number of improvements, not training steps; each simulates every move of a block
};

/// A partition that balance() found. Times are in the unit of the loads; the makespan is the time of a simulated step.
struct Balance {
  std::vector<std::int64_t> layers;  // [stage]: number of blocks, at least 1
  double slowest = 0;                // total time of the ops of the slowest worker
  double least = 0;                  // minimum of `slowest` over all cuts that fit in memory
  double makespan = 0;               // of this partition
  double even_makespan = std::numeric_limits<double>::infinity();  // of the even cut; infinity if it does not fit
  bool exact = true;  // whether `least` is proven; false if the search reached its limit of 300,000 steps
};

/// Returns `options` with fewer `candidates` and `steps`, so that simulating all candidates, and then simulating all
/// improvements, takes at most about `ops` simulated ops each.
[[nodiscard]] BalanceOptions limit_ops(BalanceOptions options, const Schedule& schedule, std::int64_t ops);

/// Returns the best cut found for the schedule's placement, or nothing if no cut fits in memory.
///
/// A worker's load is the sum over its stages: in Chimera with two pipelines of 4 stages, worker 1 has stages 1 and 2.
/// The search has three parts. First, bisection finds Balance::least. Workers with equal loads do not guarantee a short
/// makespan, because unequal stages wait for each other. Therefore the search then simulates the even cut, and up to
/// `candidates` cuts whose slowest worker takes at most (1 + tolerance) x `least`. Finally, moves of single blocks
/// improve the best cut.
///
/// Memory holds weights (all versions of an asynchronous schedule), gradients, optimizer state and activations in
/// flight, but not messages. Every stage has at least one block. Throws ConfigError if there are fewer blocks than
/// stages, or a load is negative or not finite.
[[nodiscard]] std::optional<Balance> balance(const Schedule& schedule, const ModelLoads& loads,
                                             const BalanceOptions& options = {});

/// Model, schedule and machine for which resolve_partition() chooses stages.
struct PartitionProblem {
  const Schedule& schedule;
  const ModelConfig& model;
  Workload workload;                     // of a full micro-batch, which a schedule may halve or slice
  bool recompute = false;                // all stages recompute
  double flops_per_byte = 0;             // FLOPs in the time of moving a byte, for flop_loads()
  std::optional<ModelLoads> loads = {};  // by a machine profile; empty: flop_loads()
  double memory = std::numeric_limits<double>::infinity();  // bytes per worker, for PartitionRule::Auto
};

/// PartitionRule::Auto keeps even stages unless others are faster by this factor: an estimate by FLOPs is not exact.
inline constexpr double kFasterThanEven = 1.03;

/// Returns the layers of each stage, by the rule of `choice` (model_config/partition.h):
/// - Even: even_partition().
/// - Balanced: balance(), which simulates about 4 million ops, without messages.
/// - Auto: balance() with fewer ops, if its result fits in memory, and if even stages do not fit or are slower by
///   kFasterThanEven; else even_partition().
/// - Listed: explicit_partition(), the user's list.
///
/// Deterministic, so that all ranks compute the same result. Throws ConfigError if there are more stages than layers,
/// or if the user's list does not match the model.
[[nodiscard]] std::vector<StageLayers> resolve_partition(const PartitionChoice& choice,
                                                         const PartitionProblem& problem);

}  // namespace chimera
