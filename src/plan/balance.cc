#include "plan/balance.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "core/mapped.h"
#include "core/reject.h"
#include "core/signals.h"
#include "schedule/weight_versions.h"
#include "simulate/simulate.h"

// Both limits of a cut, time and memory, are linear in the loads of a stage's blocks. So a schedule becomes a list of
// Constraints, and CutSearch assigns blocks to stages by exact backtracking. Balancer calls it with smaller and smaller
// times, and then lets the simulator choose among nearly balanced cuts.

namespace chimera {
namespace {

/// Limit of a worker's op time, or of its bytes at some op. The amount is `base` plus, for each stage, `factors` times
/// the summed loads of the stage's blocks.
struct Constraint {
  bool time = false;
  double base = 0;                                              // embedding, head and the stages' inputs
  std::vector<std::pair<std::size_t, LayerLoad>> factors = {};  // ascending stages
  friend std::partial_ordering operator<=>(const Constraint&, const Constraint&) = default;
};

/// What a worker does or holds of a stage, as multiples of the loads of the stage's blocks, and how many of its inputs.
struct StageFactors {
  LayerLoad loads;
  double inputs = 0;
  friend std::partial_ordering operator<=>(const StageFactors&, const StageFactors&) = default;
};
using WorkerFactors = std::map<std::size_t, StageFactors>;

double product(const LayerLoad& factors, const LayerLoad& loads) {
  double sum = 0;
  for (const auto load : kLoads) sum += factors.*load * loads.*load;
  return sum;
}

/// Embedding and head are always on the first and last stage, so they are constants of the search.
Constraint constraint_of(bool time, const WorkerFactors& factors, const Schedule& schedule, const ModelLoads& loads) {
  Constraint constraint{.time = time};
  const auto last = static_cast<std::size_t>(schedule.stages) - 1;
  for (const auto& [stage, of_stage] : factors) {
    constraint.factors.emplace_back(stage, of_stage.loads);
    if (stage == 0) constraint.base += product(of_stage.loads, loads.embedding);
    // The input of stage 0 is tokens, which are not counted.
    if (stage > 0) constraint.base += of_stage.inputs * loads.boundary;
    if (stage == last) constraint.base += product(of_stage.loads, loads.head);
  }
  return constraint;
}

/// Returns the mean size of a micro-batch or slice, in full micro-batches.
double size_of_op(const Schedule& schedule) {
  return schedule.micro_batch_scale / static_cast<double>(schedule.slices);
}

/// Returns what the worker holds at all times: weights, as often as there are versions, and state.
WorkerFactors worker_factors(const Schedule& schedule, std::size_t worker) {
  WorkerFactors factors;
  const auto versions = static_cast<double>(peak_weight_versions(schedule, worker));
  for (const auto& row : schedule.placement.worker_of) {
    for (std::size_t s = 0; s < row.size(); ++s) {
      if (row[s].index() != worker) continue;
      // Replicas that have the stage on this worker share its weights.
      factors[s].loads.weights = versions;
      factors[s].loads.state = 1;
    }
  }
  return factors;
}

/// Returns whether `b` holds at least as much of every load on every stage; then `a` restricts nothing.
bool has_no_more(const WorkerFactors& a, const WorkerFactors& b) {
  return std::all_of(a.begin(), a.end(), [&](const auto& entry) {
    const StageFactors& other = b.at(entry.first);
    if (entry.second.inputs > other.inputs) return false;
    return std::ranges::all_of(kLoads, [&](auto load) { return entry.second.loads.*load <= other.loads.*load; });
  });
}

/// Returns what a worker holds at the moments at which its memory may peak. A moment is left out if another one holds
/// at least as much of everything.
std::set<WorkerFactors> peak_moments(const Schedule& schedule, std::size_t worker, bool recompute) {
  const double scale = size_of_op(schedule);
  WorkerFactors now = worker_factors(schedule, worker);
  std::set<WorkerFactors> moments;
  for (const Op& op : schedule.workers[worker]) {
    StageFactors& stage = now[op.stage.index()];
    const bool is_forward = op.kind == OpKind::Forward;
    if (is_forward) stage.inputs += scale;
    // A stage that recomputes holds its activations only during the backward; its input from the forward on.
    if (recompute ? gives_input_gradient(op.kind) : is_forward) stage.loads.activations += scale;
    // Taken after an op has begun and before it frees anything: memory peaks only at such moments.
    moments.insert(now);
    if (gives_input_gradient(op.kind)) {
      stage.loads.activations -= scale;
      stage.inputs -= scale;
    }
    if (op.kind == OpKind::BackwardInput) stage.loads.deferred += scale;
    if (op.kind == OpKind::BackwardWeight) stage.loads.deferred -= scale;
  }
  moments.insert(now);
  // Of hundreds of moments, few are left; each is a constraint that the search checks at every step.
  std::erase_if(moments, [&](const WorkerFactors& moment) {
    return std::ranges::any_of(
        moments, [&](const WorkerFactors& other) { return &other != &moment && has_no_more(moment, other); });
  });
  return moments;
}

/// Returns the distinct constraints of all workers: on the time of their ops and, if memory is limited, on their bytes.
std::vector<Constraint> constraints_of(const Schedule& schedule, const ModelLoads& loads,
                                       const BalanceOptions& options) {
  // A set, because workers of a schedule often have equal constraints.
  std::set<Constraint> constraints;
  const double scale = size_of_op(schedule);
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
    WorkerFactors factors;
    for (const Op& op : schedule.workers[w]) {
      LayerLoad& times = factors[op.stage.index()].loads;
      if (op.kind == OpKind::Forward) times.forward += scale;
      if (gives_input_gradient(op.kind)) times.input_gradient += scale;
      if (gives_input_gradient(op.kind) && options.recompute) times.forward += scale;
      if (gives_weight_gradient(op.kind)) times.weight_gradient += scale;
    }
    constraints.insert(constraint_of(true, factors, schedule, loads));
    if (!std::isfinite(options.memory)) continue;
    for (const WorkerFactors& moment : peak_moments(schedule, w, options.recompute))
      constraints.insert(constraint_of(false, moment, schedule, loads));
  }
  return {constraints.begin(), constraints.end()};
}

constexpr double kUnlimited = std::numeric_limits<double>::infinity();
constexpr double kRounding = 1e-12;  // relative excess that a limit tolerates

/// Returns [stage]: a number that connected stages share.
std::vector<std::size_t> components(const std::vector<Constraint>& constraints, std::size_t stages) {
  std::vector<std::size_t> component(stages);
  std::iota(component.begin(), component.end(), std::size_t{0});
  for (const Constraint& constraint : constraints) {
    for (const auto& [stage, factors] : constraint.factors) {
      const std::size_t from = component[stage];
      const std::size_t to = component[constraint.factors.front().first];
      // Stages in one constraint get the number of the first of them.
      std::replace(component.begin(), component.end(), from, to);
    }
  }
  return component;
}

/// Returns how many blocks fit, if each takes at least `cheapest`.
double blocks_in(double room, double cheapest) {
  if (cheapest <= 0) return room >= 0 ? kUnlimited : 0;
  return std::floor(room / cheapest + 1e-9);
}

/// [stage]: number of blocks, at least 1.
using Cut = std::vector<std::int64_t>;

/// Exact backtracking over stages. Prunes a branch if even the cheapest remaining blocks do not fit, or if its state
/// has failed before. The stages of a bidirectional schedule fall into components: worker 0 has the stages 0 and S-1,
/// worker 1 the stages 1 and S-2, and so on, and only stages of one component share a limit. So has_room() can bound
/// the blocks of each component by itself.
class CutSearch {
 public:
  /// `memory` limits all constraints other than times. Requires at least as many blocks as stages.
  CutSearch(std::vector<Constraint> constraints, const std::vector<LayerLoad>& blocks, std::size_t stages,
            double memory)
      : constraints_(std::move(constraints)),
        touched_(stages),
        component_(components(constraints_, stages)),
        sums_(1),
        stages_(stages),
        memory_(memory) {
    for (const LayerLoad& block : blocks) {
      // Prefix sums, so that the loads of any run of blocks are one subtraction.
      LayerLoad& sum = sums_.emplace_back(sums_.back());
      for (const auto load : kLoads) sum.*load += block.*load;
    }
    for (std::size_t c = 0; c < constraints_.size(); ++c) {
      auto& cheapest = cheapest_.emplace_back();
      for (const auto& [stage, factors] : constraints_[c].factors) {
        double least = kUnlimited;
        for (const LayerLoad& block : blocks) least = std::min(least, product(factors, block));
        cheapest.push_back(least);
        touched_[stage].push_back(c);
      }
    }
  }

  [[nodiscard]] double slowest(const Cut& cut) const {
    double most = 0;
    for (const Constraint& constraint : constraints_)
      if (constraint.time) most = std::max(most, amount(constraint, cut));
    return most;
  }
  /// Returns whether the cut satisfies all constraints and workers take at most `time`.
  [[nodiscard]] bool holds(const Cut& cut, double time) const {
    return std::all_of(constraints_.begin(), constraints_.end(), [&](const Constraint& constraint) {
      return amount(constraint, cut) <= (constraint.time ? time : memory_) * (1 + kRounding);
    });
  }

  /// Returns up to `most` cuts whose workers take at most `time`, nearly even cuts first.
  [[nodiscard]] std::vector<Cut> find(double time, std::size_t most) {
    time_ = time;
    most_ = most;
    steps_ = 0;
    cut_.assign(stages_, 0);
    found_.clear();
    failed_.clear();
    amounts_.clear();
    for (std::size_t c = 0; c < constraints_.size(); ++c)
      // Each stage reserves its cheapest block until it is placed, so amounts never underestimate by much.
      amounts_.push_back(std::accumulate(cheapest_[c].begin(), cheapest_[c].end(), constraints_[c].base));
    visit(0, 0);
    return found_;
  }
  /// Returns whether the last find() ended before its step limit.
  [[nodiscard]] bool complete() const { return steps_ < kMaxSteps; }

 private:
  static constexpr std::size_t kMaxSteps = 300'000;
  using Failed = std::pair<std::size_t, std::vector<double>>;

  [[nodiscard]] double limit(const Constraint& constraint) const { return constraint.time ? time_ : memory_; }
  [[nodiscard]] LayerLoad between(std::size_t first, std::size_t end) const {
    LayerLoad loads;
    for (const auto load : kLoads) loads.*load = sums_[end].*load - sums_[first].*load;
    return loads;
  }
  [[nodiscard]] double amount(const Constraint& constraint, const Cut& cut) const {
    std::vector<std::size_t> ends(cut.size() + 1, 0);
    for (std::size_t s = 0; s < cut.size(); ++s) ends[s + 1] = ends[s] + static_cast<std::size_t>(cut[s]);
    double sum = constraint.base;
    for (const auto& [stage, factors] : constraint.factors)
      sum += product(factors, between(ends[stage], ends[stage + 1]));
    return sum;
  }
  /// Replaces the reserved cheapest block of the stage by these blocks.
  void place(std::size_t stage, std::size_t first, std::size_t end) {
    const LayerLoad loads = between(first, end);
    for (const std::size_t c : touched_[stage]) {
      const auto& factors = constraints_[c].factors;
      const auto at = std::lower_bound(factors.begin(), factors.end(), stage,
                                       [](const auto& entry, std::size_t wanted) { return entry.first < wanted; });
      const double reserved = cheapest_[c][static_cast<std::size_t>(at - factors.begin())];
      amounts_[c] += product(at->second, loads) - reserved;
    }
  }
  /// Returns false if the stages from `stage` on cannot hold the remaining blocks.
  [[nodiscard]] bool has_room(std::size_t stage, std::size_t first) const {
    std::vector<double> of_stage(stages_, kUnlimited);  // additional blocks that fit on the stage
    std::map<std::size_t, std::size_t> open;            // [component]: number of unplaced stages
    for (std::size_t s = stage; s < stages_; ++s) ++open[component_[s]];
    // Blocks that fit into a whole component, if one constraint covers all of its stages that are left. The blocks that
    // fit are then bounded twice: by each stage alone and by the component together.
    std::map<std::size_t, double> together;
    for (std::size_t c = 0; c < constraints_.size(); ++c) {
      const auto& factors = constraints_[c].factors;
      const double room = limit(constraints_[c]) * (1 + kRounding) - amounts_[c];
      if (room < 0) return false;
      double cheapest = kUnlimited;
      std::size_t to_come = 0;
      for (std::size_t i = 0; i < factors.size(); ++i) {
        const std::size_t s = factors[i].first;
        if (s < stage) continue;
        ++to_come;
        cheapest = std::min(cheapest, cheapest_[c][i]);
        of_stage[s] = std::min(of_stage[s], blocks_in(room, cheapest_[c][i]));
      }
      if (to_come == 0 || to_come < open[component_[factors.front().first]]) continue;
      const auto at = together.try_emplace(component_[factors.front().first], kUnlimited).first;
      at->second = std::min(at->second, blocks_in(room, cheapest));
    }
    std::map<std::size_t, double> alone;
    for (std::size_t s = stage; s < stages_; ++s) alone[component_[s]] += of_stage[s];
    double room = 0;
    for (const auto& [component, blocks] : alone) {
      const auto at = together.find(component);
      room += at == together.end() ? blocks : std::min(blocks, at->second);
    }
    // Blocks beyond the one that each stage has reserved.
    const auto more = static_cast<double>(sums_.size() - 1 - first) - static_cast<double>(stages_ - stage);
    return room >= more;
  }
  /// Returns the memo key: position, and amounts of constraints that both sides share.
  [[nodiscard]] Failed state(std::size_t stage, std::size_t first) const {
    Failed state{stage * sums_.size() + first, {}};
    for (std::size_t c = 0; c < constraints_.size(); ++c) {
      const auto& factors = constraints_[c].factors;
      // The constraint has stages on one side only, so the other side cannot depend on it.
      if (factors.empty() || factors.back().first < stage || factors.front().first >= stage) continue;
      state.second.push_back(amounts_[c]);
    }
    return state;
  }
  /// Returns whether a cut exists from here; stops after enough cuts.
  bool visit(std::size_t stage, std::size_t first) {
    if (stage == stages_) {
      found_.push_back(cut_);
      return true;
    }
    throw_if_interrupted();
    if (++steps_ >= kMaxSteps || !has_room(stage, first)) return false;
    Failed here = state(stage, first);
    if (failed_.contains(here)) return false;
    const auto left = static_cast<std::int64_t>(sums_.size() - 1 - first);
    const auto stages = static_cast<std::int64_t>(stages_ - stage);
    std::vector<std::int64_t> counts;
    // Each later stage needs a block; the last stage takes all that are left.
    for (std::int64_t n = stages == 1 ? left : 1; n <= left - stages + 1; ++n) counts.push_back(n);
    // Nearly even counts come first, because they usually fit.
    const std::int64_t even = (left + stages - 1) / stages;
    std::stable_sort(counts.begin(), counts.end(),
                     [&](std::int64_t a, std::int64_t b) { return std::abs(a - even) < std::abs(b - even); });
    bool any = false;
    for (const std::int64_t n : counts) {
      const std::size_t end = first + static_cast<std::size_t>(n);
      // Copied back below, and not recomputed: sums would differ in their last bits, and the memo compares bits.
      const std::vector<double> before = amounts_;
      place(stage, first, end);
      cut_[stage] = n;
      const bool room = stage + 1 < stages_ || has_room(stages_, end);
      any |= room && visit(stage + 1, end);
      amounts_ = before;
      if (found_.size() >= most_ || steps_ >= kMaxSteps) return any;
    }
    // Whether the rest fits depends only on the position and on amounts that both sides share.
    if (!any) failed_.insert(std::move(here));
    return any;
  }

  std::vector<Constraint> constraints_;
  std::vector<std::vector<double>> cheapest_;      // [constraint][factor]: minimum that one block adds
  std::vector<std::vector<std::size_t>> touched_;  // [stage]: constraints that depend on it
  std::vector<std::size_t> component_;             // [stage]: equal for stages that constraints connect
  std::vector<LayerLoad> sums_;                    // [block]: sum of the loads of all earlier blocks
  std::size_t stages_;
  double memory_;

  double time_ = 0;
  std::size_t most_ = 1;
  std::size_t steps_ = 0;
  std::vector<double> amounts_;  // [constraint]: with the cheapest block on each stage not yet placed
  Cut cut_;
  std::vector<Cut> found_;
  std::set<Failed> failed_;
};

constexpr double kSmallest = 1e-9;  // relative difference below which times are equal

void require_load(const LayerLoad& layer, const char* what) {
  for (const auto load : kLoads)
    if (!std::isfinite(layer.*load) || layer.*load < 0)
      reject("load of the {}: {} is not a finite number of 0 or more", what, layer.*load);
}

void require_valid(const Schedule& schedule, const ModelLoads& loads) {
  require_load(loads.embedding, "embedding");
  for (const LayerLoad& block : loads.blocks) require_load(block, "block");
  require_load(loads.head, "head");
  if (static_cast<std::int64_t>(loads.blocks.size()) < schedule.stages) {
    reject("cannot cut {} layers into {} stages; each stage needs at least one layer", loads.blocks.size(),
           schedule.stages);
  }
}

Cut even_cut(std::size_t blocks, std::int64_t stages) {
  return mapped(even_partition(static_cast<std::int64_t>(blocks), stages), &StageLayers::blocks);
}

std::int64_t unevenness(const Cut& cut, const Cut& even) {
  std::int64_t sum = 0;
  for (std::size_t s = 0; s < cut.size(); ++s) sum += std::abs(cut[s] - even[s]);
  return sum;
}

class Balancer {
 public:
  Balancer(const Schedule& schedule, const ModelLoads& loads, const BalanceOptions& options)
      : schedule_(schedule),
        loads_(loads),
        options_(options),
        even_(even_cut(loads.blocks.size(), schedule.stages)),
        search_(constraints_of(schedule, loads, options), loads.blocks, even_.size(), options.memory) {}

  std::optional<Balance> run() {
    const auto first = search_.find(kUnlimited, 1);
    if (first.empty()) return std::nullopt;
    best_.exact = search_.complete();
    find_least(first.front());
    rank_candidates();
    for (std::int64_t step = 0; step < options_.steps && improve(); ++step) continue;
    return best_;
  }

 private:
  /// Bisects between a sufficient and an insufficient time, until no cut is faster.
  void find_least(Cut cut) {
    if (search_.holds(even_, kUnlimited) && search_.slowest(even_) < search_.slowest(cut)) cut = even_;
    double enough = search_.slowest(cut);
    double too_little = 0;
    while (enough > 0) {
      // Bisection alone would never prove that nothing is faster, so the last attempt asks for just less than the best
      // cut.
      const bool last = too_little > 0.999 * enough;
      const double time = last ? enough * (1 - kSmallest) : (enough + too_little) / 2;
      auto found = search_.find(time, 1);
      if (!found.empty()) {
        cut = std::move(found.front());
        // The cut found may be much faster than asked for.
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

  /// Cuts that are nearly as balanced may have a shorter makespan, so all within the tolerance are simulated.
  void rank_candidates() {
    if (search_.holds(even_, kUnlimited)) keep_if_better(even_);
    const auto most = static_cast<std::size_t>(std::max<std::int64_t>(options_.candidates, 1));
    for (const Cut& cut : search_.find(best_.least * (1 + options_.tolerance), most)) keep_if_better(cut);
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
        if (search_.holds(cut, kUnlimited)) keep_if_better(cut);
      }
    }
    return best_.layers != before;
  }

  /// Ties: slowest worker, then evenness.
  void keep_if_better(const Cut& cut) {
    const double makespan = simulate(schedule_, stage_costs(loads_, cut, options_.recompute)).makespan;
    const double slowest = search_.slowest(cut);
    if (cut == even_) best_.even_makespan = makespan;
    const auto same = [](double a, double b) { return a == b || std::abs(a - b) <= kSmallest * std::abs(b); };
    if (!best_.layers.empty()) {
      if (!same(makespan, best_.makespan)) {
        if (makespan > best_.makespan) return;
      } else if (!same(slowest, best_.slowest)) {
        if (slowest > best_.slowest) return;
      } else if (unevenness(cut, even_) >= unevenness(best_.layers, even_)) {
        return;
      }
    }
    best_.layers = cut;
    best_.makespan = makespan;
    best_.slowest = slowest;
  }

  const Schedule& schedule_;
  const ModelLoads& loads_;
  const BalanceOptions& options_;
  Cut even_;
  CutSearch search_;
  Balance best_;
};

}  // namespace

BalanceOptions limit_ops(BalanceOptions options, const Schedule& schedule, std::int64_t ops) {
  const std::int64_t cuts = ops / std::max<std::int64_t>(num_ops(schedule), 1);
  options.candidates = std::clamp<std::int64_t>(cuts, 1, options.candidates);
  // improve() tries a move between every two stages.
  options.steps = std::clamp<std::int64_t>(cuts / (schedule.stages * schedule.stages), 0, options.steps);
  return options;
}

std::optional<Balance> balance(const Schedule& schedule, const ModelLoads& loads, const BalanceOptions& options) {
  require_valid(schedule, loads);
  return Balancer(schedule, loads, options).run();
}

std::vector<StageLayers> resolve_partition(const PartitionChoice& choice, const PartitionProblem& problem) {
  const std::int64_t layers = problem.model.layers;
  const std::int64_t stages = problem.schedule.stages;
  if (choice.rule == PartitionRule::Even) return even_partition(layers, stages);
  if (choice.rule == PartitionRule::Listed) return explicit_partition(choice.layers, layers, stages);
  const auto loads =
      problem.loads ? *problem.loads : flop_loads(problem.model, problem.workload, problem.flops_per_byte);
  if (choice.rule == PartitionRule::Balanced) {
    const auto options = limit_ops({.recompute = problem.recompute}, problem.schedule, 2'000'000);
    return explicit_partition(balance(problem.schedule, loads, options)->layers, layers, stages);
  }
  const BalanceOptions limits{.memory = problem.memory, .recompute = problem.recompute};
  const auto found = balance(problem.schedule, loads, limit_ops(limits, problem.schedule, 500'000));
  const bool is_faster = found && found->even_makespan > kFasterThanEven * found->makespan;
  return is_faster ? explicit_partition(found->layers, layers, stages) : even_partition(layers, stages);
}

}  // namespace chimera
