#include "plan/cut_limits.h"

#include <algorithm>
#include <compare>
#include <map>
#include <set>

#include "simulate/weight_versions.h"

namespace chimera {
namespace {

enum Field : std::size_t { kForward, kInputGradient, kWeightGradient, kWeights, kState, kActivations, kDeferred };

/// How a stage weighs on a worker: factors of its loads, and how many of its inputs the worker holds.
struct StageFactors {
  Loads loads{};
  double inputs = 0;
  friend std::partial_ordering operator<=>(const StageFactors&, const StageFactors&) = default;
};
using WorkerFactors = std::map<std::size_t, StageFactors>;  // [stage]

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

/// The bytes that the worker holds all the time.
WorkerFactors held(const Schedule& schedule, std::size_t worker) {
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

/// Goes through a worker's ops and notes what it holds at each of them.
class Holding {
 public:
  Holding(const Schedule& schedule, std::size_t worker, bool recompute)
      : scale_(schedule.micro_batch_scale), recompute_(recompute), now_(held(schedule, worker)) {
    for (const Op& op : schedule.workers[worker]) pass(op);
    note();
  }

  /// Limits bytes at the ops where no other op has more.
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
  for (const auto& ops : schedule.workers) {
    WorkerFactors factors;
    for (const Op& op : ops) {
      Loads& times = factors[op.stage.index()].loads;
      if (op.kind == OpKind::Forward) times[kForward] += schedule.micro_batch_scale;
      if (gives_input_gradient(op.kind)) times[kInputGradient] += schedule.micro_batch_scale;
      if (gives_input_gradient(op.kind) && recompute) times[kForward] += schedule.micro_batch_scale;
      if (gives_weight_gradient(op.kind)) times[kWeightGradient] += schedule.micro_batch_scale;
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

}  // namespace chimera
