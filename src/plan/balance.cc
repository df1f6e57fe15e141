#include "plan/balance.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "plan/cut_search.h"
#include "plan/own_layers.h"
#include "plan/tensor_parallel.h"
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

}  // namespace

ModelLoads flop_loads(const ModelConfig& model, const Workload& workload) {
  const auto stage = [&](std::int64_t blocks, bool embedding, bool head) {
    return stage_footprint(model, {0, blocks, embedding, head}, workload);
  };
  const StageFootprint block = stage(1, false, false);
  const auto more = [&](const StageFootprint& with, const StageFootprint& without, double input) {
    const StageMemory& a = with.memory;
    const StageMemory& b = without.memory;
    return LayerLoad{with.forward_flops - without.forward_flops,
                     with.input_gradient_flops - without.input_gradient_flops,
                     with.weight_gradient_flops - without.weight_gradient_flops,
                     a.weights - b.weights,
                     a.gradients + a.optimizer - b.gradients - b.optimizer,
                     a.activations - b.activations + input,
                     *a.deferred - *b.deferred};
  };
  ModelLoads loads;
  loads.boundary = block.memory.boundary;
  loads.embedding = more(stage(1, true, false), block, loads.boundary);  // replaces the stage's input
  loads.head = more(stage(1, false, true), block, 0);
  loads.blocks.assign(static_cast<std::size_t>(model.layers), more(stage(2, false, false), block, 0));
  return loads;
}

CostModel stage_costs(const ModelLoads& loads, const std::vector<std::int64_t>& layers, bool recompute) {
  CostModel costs;
  auto block = loads.blocks.begin();
  for (std::size_t s = 0; s < layers.size(); ++s) {
    StageCosts stage{0, 0, 0, 0};
    const auto add = [&](const LayerLoad& layer) {
      stage.forward += layer.forward;
      stage.input_gradient += layer.input_gradient;
      stage.weight_gradient += layer.weight_gradient;
    };
    if (s == 0) add(loads.embedding);
    for (std::int64_t i = 0; i < layers[s]; ++i) add(*block++);
    if (s + 1 == layers.size()) add(loads.head);
    stage.backward = stage.input_gradient + stage.weight_gradient;
    if (recompute) costs.recompute.push_back(stage.forward);
    costs.stages.push_back(stage);
  }
  return costs;
}

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

namespace {

ModelLoads machine_loads(const PlanProblem& problem, const Candidate& candidate, double micro_batch_scale) {
  if (!problem.layers.empty()) return own_loads(problem.layers, candidate.micro_batch_size, micro_batch_scale);
  Workload workload = problem.workload;
  workload.micro_batch_size = candidate.micro_batch_size;
  ModelLoads loads = flop_loads(problem.model, workload);
  workload.micro_batch_size = std::llround(static_cast<double>(workload.micro_batch_size) * micro_batch_scale);
  workload.slices = candidate.shape.slices;
  const auto set_times = [&](LayerLoad& load, LayerKind kind) {
    const std::int64_t count = candidate.tensor_parallel;
    const LayerTime time = split_layer_time(problem.machine, problem.model, kind, workload, count);
    const LayerTime sums = tensor_sums(problem.machine, problem.model, kind, workload, count);
    load.forward = (time.forward + sums.forward) / micro_batch_scale;
    load.input_gradient = (time.input_gradient + sums.input_gradient) / micro_batch_scale;
    load.weight_gradient = time.weight_gradient / micro_batch_scale;
    for (double* bytes : {&load.weights, &load.state}) *bytes /= static_cast<double>(count);
    for (double* bytes : {&load.activations, &load.deferred}) *bytes *= held_activations(count);
  };
  set_times(loads.embedding, LayerKind::Embedding);
  set_times(loads.head, LayerKind::Head);
  set_times(loads.blocks.front(), LayerKind::Block);
  std::ranges::fill(loads.blocks, loads.blocks.front());
  return loads;
}

}  // namespace

std::optional<PartitionChoice> balanced_cut(Predictor& predictor, const Candidate& candidate) {
  constexpr std::int64_t kOps = 100'000;
  const PlannedSchedule planned = predictor.prepare(candidate);
  const std::int64_t stages = planned.schedule->stages;
  if (stages < 2) return std::nullopt;
  const std::int64_t cuts = kOps / std::max<std::int64_t>(num_ops(*planned.schedule), 1);
  BalanceOptions options{.memory = predictor.problem().memory_bytes, .recompute = !candidate.recompute.empty()};
  options.candidates = std::clamp<std::int64_t>(cuts, 1, 100);
  options.steps = std::clamp<std::int64_t>(cuts / (stages * stages), 0, 3);
  const ModelLoads loads = machine_loads(predictor.problem(), candidate, planned.schedule->micro_batch_scale);
  const auto found = balance(*planned.schedule, loads, options);
  if (!found) return std::nullopt;
  const auto cut = explicit_partition(found->layers, predictor.problem().model.layers, stages);
  if (cut == planned.partition) return std::nullopt;
  return PartitionChoice{PartitionRule::Listed, found->layers};
}

}  // namespace chimera
