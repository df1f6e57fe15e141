#include "plan/balance.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "plan/cut_search.h"
#include "simulate/simulate.h"

namespace chimera {
namespace {

constexpr double kNoTime = std::numeric_limits<double>::infinity();
constexpr double kSmallest = 1e-9;  // relative difference below which times are equal

void require_load(const LayerLoad& layer, const char* what) {
  for (const double load : loads_of(layer)) {
    if (!std::isfinite(load) || load < 0)
      throw ConfigError(fmt::format("load of the {}: {} is not a finite number of 0 or more", what, load));
  }
}

void require_valid(const Schedule& schedule, const ModelLoads& loads) {
  require_load(loads.embedding, "embedding");
  for (const LayerLoad& block : loads.blocks) require_load(block, "block");
  require_load(loads.head, "head");
  if (static_cast<std::int64_t>(loads.blocks.size()) < schedule.stages) {
    throw ConfigError(fmt::format("cannot cut {} layers into {} stages; each stage needs at least one layer",
                                  loads.blocks.size(), schedule.stages));
  }
}

Cut even_cut(std::size_t blocks, std::int64_t stages) {
  Cut cut;
  for (const StageLayers& stage : even_partition(static_cast<std::int64_t>(blocks), stages))
    cut.push_back(stage.end_layer - stage.first_layer);
  return cut;
}

std::int64_t unevenness(const Cut& cut, const Cut& even) {
  std::int64_t sum = 0;
  for (std::size_t s = 0; s < cut.size(); ++s) sum += std::abs(cut[s] - even[s]);
  return sum;
}

class Balancer {
 public:
  Balancer(const Schedule& schedule, const ModelLoads& loads, const BalanceOptions& options, const CutRanking& rank)
      : options_(options),
        rank_(rank),
        even_(even_cut(loads.blocks.size(), schedule.stages)),
        search_(constraints(schedule, loads, options), loads.blocks, even_.size(), options.memory) {}

  std::optional<Balance> run() {
    const auto first = search_.find(kNoTime, 1);
    if (first.empty()) return std::nullopt;
    best_.exact = search_.complete();
    find_least(first.front());
    rank_candidates();
    for (std::int64_t step = 0; step < options_.steps && improve(); ++step) continue;
    return best_;
  }

 private:
  static std::vector<Constraint> constraints(const Schedule& schedule, const ModelLoads& loads,
                                             const BalanceOptions& options) {
    auto all = time_constraints(schedule, loads, options.recompute);
    if (!std::isfinite(options.memory)) return all;
    const auto memory = memory_constraints(schedule, loads, options.recompute);
    all.insert(all.end(), memory.begin(), memory.end());
    return all;
  }

  /// Bisects between a sufficient and an insufficient time, until no cut is faster.
  void find_least(Cut cut) {
    if (search_.holds(even_, kNoTime) && search_.slowest(even_) < search_.slowest(cut)) cut = even_;
    double enough = search_.slowest(cut);
    double too_little = 0;
    while (enough > 0) {
      const bool last = too_little > 0.999 * enough;
      const double time = last ? enough * (1 - kSmallest) : (enough + too_little) / 2;
      auto found = search_.find(time, 1);
      if (!found.empty()) {
        cut = std::move(found.front());
        enough = search_.slowest(cut);
        continue;
      }
      best_.exact = best_.exact && search_.complete();
      too_little = time;
      if (last) break;
    }
    best_.least = enough;
    keep_if_better(cut);
  }

  void rank_candidates() {
    if (search_.holds(even_, kNoTime)) keep_if_better(even_);
    const auto most = static_cast<std::size_t>(std::max<std::int64_t>(options_.candidates, 1));
    const auto cuts = search_.find(best_.least * (1 + options_.tolerance), most);
    best_.all_ranked = search_.complete() && cuts.size() < most;
    for (const Cut& cut : cuts) keep_if_better(cut);
  }

  /// Returns false if no move of a single block helps.
  bool improve() {
    const Cut before = best_.layers;
    for (std::size_t from = 0; from < before.size(); ++from) {
      for (std::size_t to = 0; to < before.size(); ++to) {
        if (from == to || before[from] == 1) continue;
        Cut cut = before;
        --cut[from];
        ++cut[to];
        if (search_.holds(cut, kNoTime)) keep_if_better(cut);
      }
    }
    return best_.layers != before;
  }

  /// Ties: slowest worker, then evenness.
  void keep_if_better(const Cut& cut) {
    const double rank = rank_(cut);
    const double slowest = search_.slowest(cut);
    const auto same = [](double a, double b) { return a == b || std::abs(a - b) <= kSmallest * std::abs(b); };
    if (!best_.layers.empty()) {
      if (!same(rank, best_.rank)) {
        if (rank > best_.rank) return;
      } else if (!same(slowest, best_.slowest)) {
        if (slowest > best_.slowest) return;
      } else if (unevenness(cut, even_) >= unevenness(best_.layers, even_)) {
        return;
      }
    }
    best_.layers = cut;
    best_.rank = rank;
    best_.slowest = slowest;
  }

  const BalanceOptions& options_;
  const CutRanking& rank_;
  Cut even_;
  CutSearch search_;
  Balance best_;
};

/// Half of the simulated ops is for candidates, half for improvement steps.
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

std::optional<Balance> balance(const Schedule& schedule, const ModelLoads& loads, const BalanceOptions& options) {
  return balance(schedule, loads, options, [&](const Cut& cut) {
    return simulate(schedule, stage_costs(loads, cut, options.recompute)).makespan;
  });
}

std::optional<Balance> balance(const Schedule& schedule, const ModelLoads& loads, const BalanceOptions& options,
                               const CutRanking& rank) {
  require_valid(schedule, loads);
  return Balancer(schedule, loads, options, rank).run();
}

std::vector<StageLayers> named_partition(const PartitionChoice& choice, const PartitionProblem& problem) {
  const std::int64_t layers = problem.model.layers;
  const std::int64_t stages = problem.schedule.stages;
  if (choice.rule == PartitionRule::Even) return even_partition(layers, stages);
  if (choice.rule == PartitionRule::Listed) return explicit_partition(choice.layers, layers, stages);
  const auto loads = flop_loads(problem.model, problem.workload);
  return explicit_partition(balance(problem.schedule, loads, options_of(problem))->layers, layers, stages);
}

}  // namespace chimera
