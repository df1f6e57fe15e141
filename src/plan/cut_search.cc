#include "plan/cut_search.h"

#include <algorithm>
#include <cmath>
#include <compare>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "core/signals.h"
#include "simulate/weight_versions.h"

namespace chimera {
namespace {

enum Field : std::size_t { kForward, kInputGradient, kWeightGradient, kWeights, kState, kActivations, kDeferred };

struct StageFactors {
  Loads loads{};
  double inputs = 0;
  friend std::partial_ordering operator<=>(const StageFactors&, const StageFactors&) = default;
};
using WorkerFactors = std::map<std::size_t, StageFactors>;

Constraint constraint_of(bool time, const WorkerFactors& factors, const Schedule& schedule, const ModelLoads& loads) {
  Constraint constraint{.time = time};
  const auto last = static_cast<std::size_t>(schedule.stages) - 1;
  for (const auto& [stage, of_stage] : factors) {
    constraint.factors.emplace_back(stage, of_stage.loads);
    if (stage == 0) constraint.base += product(of_stage.loads, loads_of(loads.embedding));
    if (stage > 0) constraint.base += of_stage.inputs * loads.boundary;
    if (stage == last) constraint.base += product(of_stage.loads, loads_of(loads.head));
  }
  return constraint;
}

std::vector<Constraint> each_once(const std::set<Constraint>& constraints) {
  return {constraints.begin(), constraints.end()};
}

/// Returns the mean size of a micro-batch or slice, in full micro-batches.
double size_of_op(const Schedule& schedule) {
  return schedule.micro_batch_scale / static_cast<double>(schedule.slices);
}

WorkerFactors worker_factors(const Schedule& schedule, std::size_t worker) {
  WorkerFactors factors;
  const auto versions = static_cast<double>(peak_weight_versions(schedule, worker));
  for (const auto& row : schedule.placement.worker_of) {
    for (std::size_t s = 0; s < row.size(); ++s) {
      if (row[s].index() != worker) continue;
      factors[s].loads[kWeights] += versions;
      factors[s].loads[kState] += 1;
    }
  }
  return factors;
}

bool has_no_more(const WorkerFactors& a, const WorkerFactors& b) {
  return std::all_of(a.begin(), a.end(), [&](const auto& entry) {
    const StageFactors& other = b.at(entry.first);
    if (entry.second.inputs > other.inputs) return false;
    for (std::size_t i = 0; i < kLoads; ++i) {
      if (entry.second.loads[i] > other.loads[i]) return false;
    }
    return true;
  });
}

class Holding {
 public:
  Holding(const Schedule& schedule, std::size_t worker, bool recompute)
      : scale_(size_of_op(schedule)), recompute_(recompute), now_(worker_factors(schedule, worker)) {
    for (const Op& op : schedule.workers[worker]) pass(op);
    note();
  }

  [[nodiscard]] std::vector<WorkerFactors> most() const {
    std::vector<WorkerFactors> result;
    for (const WorkerFactors& moment : moments_) {
      const auto covered = [&](const WorkerFactors& other) { return &other != &moment && has_no_more(moment, other); };
      if (std::none_of(moments_.begin(), moments_.end(), covered)) result.push_back(moment);
    }
    return result;
  }

 private:
  void pass(const Op& op) {
    StageFactors& stage = now_[op.stage.index()];
    if (op.kind == OpKind::Forward) {
      stage.inputs += scale_;
      if (!recompute_) stage.loads[kActivations] += scale_;
      note();
      return;
    }
    if (recompute_ && gives_input_gradient(op.kind)) stage.loads[kActivations] += scale_;
    note();
    if (gives_input_gradient(op.kind)) {
      stage.loads[kActivations] -= scale_;
      stage.inputs -= scale_;
    }
    if (op.kind == OpKind::BackwardInput) stage.loads[kDeferred] += scale_;
    if (op.kind == OpKind::BackwardWeight) stage.loads[kDeferred] -= scale_;
  }

  void note() { moments_.insert(now_); }

  double scale_;
  bool recompute_;
  WorkerFactors now_;
  std::set<WorkerFactors> moments_;
};

constexpr double kRounding = 1e-12;  // relative excess that a limit tolerates
constexpr double kUnlimited = std::numeric_limits<double>::infinity();

/// Returns [stage]: a number that connected stages share.
std::vector<std::size_t> components(const std::vector<Constraint>& constraints, std::size_t stages) {
  std::vector<std::size_t> component(stages);
  std::iota(component.begin(), component.end(), std::size_t{0});
  for (const Constraint& constraint : constraints) {
    for (const auto& [stage, factors] : constraint.factors) {
      const std::size_t from = component[stage];
      const std::size_t to = component[constraint.factors.front().first];
      std::replace(component.begin(), component.end(), from, to);
    }
  }
  return component;
}

double blocks_in(double room, double cheapest) {
  if (cheapest <= 0) return room >= 0 ? kUnlimited : 0;
  return std::floor(room / cheapest + 1e-9);
}

}  // namespace

Loads loads_of(const LayerLoad& layer) {
  return {layer.forward, layer.input_gradient, layer.weight_gradient, layer.weights,
          layer.state,   layer.activations,    layer.deferred};
}

double product(const Loads& factors, const Loads& loads) {
  double sum = 0;
  for (std::size_t i = 0; i < kLoads; ++i) sum += factors[i] * loads[i];
  return sum;
}

std::vector<Constraint> time_constraints(const Schedule& schedule, const ModelLoads& loads, bool recompute) {
  std::set<Constraint> constraints;
  const double scale = size_of_op(schedule);
  for (const auto& ops : schedule.workers) {
    WorkerFactors factors;
    for (const Op& op : ops) {
      Loads& times = factors[op.stage.index()].loads;
      if (op.kind == OpKind::Forward) times[kForward] += scale;
      if (gives_input_gradient(op.kind)) times[kInputGradient] += scale;
      if (gives_input_gradient(op.kind) && recompute) times[kForward] += scale;
      if (gives_weight_gradient(op.kind)) times[kWeightGradient] += scale;
    }
    constraints.insert(constraint_of(true, factors, schedule, loads));
  }
  return each_once(constraints);
}

std::vector<Constraint> memory_constraints(const Schedule& schedule, const ModelLoads& loads, bool recompute) {
  std::set<Constraint> constraints;
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
    for (const WorkerFactors& moment : Holding(schedule, w, recompute).most())
      constraints.insert(constraint_of(false, moment, schedule, loads));
  }
  return each_once(constraints);
}

CutSearch::CutSearch(std::vector<Constraint> constraints, const std::vector<LayerLoad>& blocks, std::size_t stages,
                     double memory)
    : constraints_(std::move(constraints)),
      touched_(stages),
      component_(components(constraints_, stages)),
      sums_(1),
      stages_(stages),
      memory_(memory) {
  for (const LayerLoad& block : blocks) {
    const Loads loads = loads_of(block);
    Loads& sum = sums_.emplace_back(sums_.back());
    for (std::size_t i = 0; i < kLoads; ++i) sum[i] += loads[i];
  }
  for (std::size_t c = 0; c < constraints_.size(); ++c) {
    auto& cheapest = cheapest_.emplace_back();
    for (const auto& [stage, factors] : constraints_[c].factors) {
      double least = kUnlimited;
      for (const LayerLoad& block : blocks) least = std::min(least, product(factors, loads_of(block)));
      cheapest.push_back(least);
      touched_[stage].push_back(c);
    }
  }
}

Loads CutSearch::between(std::size_t first, std::size_t end) const {
  Loads loads{};
  for (std::size_t i = 0; i < kLoads; ++i) loads[i] = sums_[end][i] - sums_[first][i];
  return loads;
}

double CutSearch::amount(const Constraint& constraint, const Cut& cut) const {
  std::vector<std::size_t> ends(cut.size() + 1, 0);
  for (std::size_t s = 0; s < cut.size(); ++s) ends[s + 1] = ends[s] + static_cast<std::size_t>(cut[s]);
  double sum = constraint.base;
  for (const auto& [stage, factors] : constraint.factors)
    sum += product(factors, between(ends[stage], ends[stage + 1]));
  return sum;
}

double CutSearch::slowest(const Cut& cut) const {
  double most = 0;
  for (const Constraint& constraint : constraints_) {
    if (constraint.time) most = std::max(most, amount(constraint, cut));
  }
  return most;
}

bool CutSearch::holds(const Cut& cut, double time) const {
  return std::all_of(constraints_.begin(), constraints_.end(), [&](const Constraint& constraint) {
    return amount(constraint, cut) <= (constraint.time ? time : memory_) * (1 + kRounding);
  });
}

/// Replaces the reserved cheapest block of the stage by these blocks.
void CutSearch::place(std::size_t stage, std::size_t first, std::size_t end) {
  const Loads loads = between(first, end);
  for (const std::size_t c : touched_[stage]) {
    const auto& factors = constraints_[c].factors;
    const auto at = std::lower_bound(factors.begin(), factors.end(), stage,
                                     [](const auto& entry, std::size_t wanted) { return entry.first < wanted; });
    const double reserved = cheapest_[c][static_cast<std::size_t>(at - factors.begin())];
    amounts_[c] += product(at->second, loads) - reserved;
  }
}

/// Returns false if the stages from `stage` on cannot hold the remaining blocks.
bool CutSearch::has_room(std::size_t stage, std::size_t first) const {
  std::vector<double> of_stage(stages_, kUnlimited);  // additional blocks that fit on the stage
  std::map<std::size_t, std::size_t> open;            // [component]: number of unplaced stages
  for (std::size_t s = stage; s < stages_; ++s) ++open[component_[s]];
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
  const auto more = static_cast<double>(sums_.size() - 1 - first) - static_cast<double>(stages_ - stage);
  return room >= more;
}

/// Returns the memo key: position, and amounts of constraints that both sides share.
CutSearch::Failed CutSearch::state(std::size_t stage, std::size_t first) const {
  Failed state{stage * sums_.size() + first, {}};
  for (std::size_t c = 0; c < constraints_.size(); ++c) {
    const auto& factors = constraints_[c].factors;
    if (factors.empty() || factors.back().first < stage || factors.front().first >= stage) continue;
    state.second.push_back(amounts_[c]);
  }
  return state;
}

/// Returns whether a cut exists from here; stops after enough cuts.
bool CutSearch::visit(std::size_t stage, std::size_t first) {
  if (stage == stages_) {
    found_.push_back(cut_);
    return true;
  }
  throw_if_interrupted();
  if (++steps_ >= kMostSteps || !has_room(stage, first)) return false;
  Failed here = state(stage, first);
  if (failed_.contains(here)) return false;
  const auto left = static_cast<std::int64_t>(sums_.size() - 1 - first);
  const auto stages = static_cast<std::int64_t>(stages_ - stage);
  std::vector<std::int64_t> counts;
  for (std::int64_t n = stages == 1 ? left : 1; n <= left - stages + 1; ++n) counts.push_back(n);
  const std::int64_t even = (left + stages - 1) / stages;
  std::stable_sort(counts.begin(), counts.end(),
                   [&](std::int64_t a, std::int64_t b) { return std::abs(a - even) < std::abs(b - even); });
  bool any = false;
  for (const std::int64_t n : counts) {
    const std::size_t end = first + static_cast<std::size_t>(n);
    const std::vector<double> before = amounts_;
    place(stage, first, end);
    cut_[stage] = n;
    const bool room = stage + 1 < stages_ || has_room(stages_, end);
    any |= room && visit(stage + 1, end);
    amounts_ = before;
    if (found_.size() >= most_ || steps_ >= kMostSteps) return any;
  }
  if (!any) failed_.insert(std::move(here));
  return any;
}

std::vector<Cut> CutSearch::find(double time, std::size_t most) {
  time_ = time;
  most_ = most;
  steps_ = 0;
  cut_.assign(stages_, 0);
  found_.clear();
  failed_.clear();
  amounts_.clear();
  for (std::size_t c = 0; c < constraints_.size(); ++c)
    amounts_.push_back(std::accumulate(cheapest_[c].begin(), cheapest_[c].end(), constraints_[c].base));
  visit(0, 0);
  return found_;
}

}  // namespace chimera
