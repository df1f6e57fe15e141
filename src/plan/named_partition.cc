#include "plan/named_partition.h"

#include <algorithm>

#include "plan/balance.h"

namespace chimera {
namespace {

/// Half of the effort goes into candidates, half into improving the best of them.
BalanceOptions options_of(const PartitionProblem& problem) {
  constexpr std::int64_t kOps = 2'000'000;
  const std::int64_t cuts = kOps / std::max<std::int64_t>(num_ops(problem.schedule), 1);
  const std::int64_t stages = problem.schedule.stages;
  BalanceOptions options{.recompute = problem.recompute};
  options.candidates = std::clamp<std::int64_t>(cuts, 1, options.candidates);
  options.steps = std::clamp<std::int64_t>(cuts / (stages * stages), 0, options.steps);
  return options;
}

}  // namespace

std::vector<StageLayers> named_partition(const PartitionChoice& choice, const PartitionProblem& problem) {
  const std::int64_t layers = problem.model.layers;
  const std::int64_t stages = problem.schedule.stages;
  if (choice.rule == PartitionRule::Even) return even_partition(layers, stages);
  if (choice.rule == PartitionRule::Listed) return explicit_partition(choice.layers, layers, stages);
  const auto loads = flop_loads(problem.model, problem.workload);
  return explicit_partition(balance(problem.schedule, loads, options_of(problem))->layers, layers, stages);
}

}  // namespace chimera
