#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "plan/model_loads.h"
#include "schedule/schedule.h"

// Finds cuts of a model into stages that keep all workers within a time and a memory limit. Both limits are linear
// in the loads of a stage's blocks, so a schedule becomes a list of Constraints. CutSearch then assigns blocks to
// stages by exact backtracking. balance() (plan/balance.h) calls it with smaller and smaller times.

namespace chimera {

inline constexpr std::size_t kLoads = 7;
using Loads = std::array<double, kLoads>;
[[nodiscard]] Loads loads_of(const LayerLoad& layer);
[[nodiscard]] double product(const Loads& factors, const Loads& loads);

/// Limit of a worker's op time, or of its bytes at some op. The amount is `base` plus, for each stage, `factors` times
/// the summed loads of the stage's blocks.
struct Constraint {
  bool time = false;
  double base = 0;                                          // embedding, head and the stages' inputs
  std::vector<std::pair<std::size_t, Loads>> factors = {};  // ascending stages
  friend std::partial_ordering operator<=>(const Constraint&, const Constraint&) = default;
};

/// Return the distinct constraints of all workers. Skip an op if another op's amounts are at least as large for every
/// stage.
[[nodiscard]] std::vector<Constraint> time_constraints(const Schedule& schedule, const ModelLoads& loads,
                                                       bool recompute);
[[nodiscard]] std::vector<Constraint> memory_constraints(const Schedule& schedule, const ModelLoads& loads,
                                                         bool recompute);

/// [stage]: number of blocks, at least 1.
using Cut = std::vector<std::int64_t>;

/// Exact backtracking over stages. Prunes a branch if even the cheapest remaining blocks do not fit, or if its state
/// has failed before.
class CutSearch {
 public:
  /// `memory` limits all constraints other than times. Requires at least as many blocks as stages.
  CutSearch(std::vector<Constraint> constraints, const std::vector<LayerLoad>& blocks, std::size_t stages,
            double memory);

  [[nodiscard]] double slowest(const Cut& cut) const;
  /// Returns whether the cut satisfies all constraints and workers take at most `time`.
  [[nodiscard]] bool holds(const Cut& cut, double time) const;

  /// Returns up to `most` cuts whose workers take at most `time`, nearly even cuts first.
  [[nodiscard]] std::vector<Cut> find(double time, std::size_t most);
  /// Returns whether the last find() ended before its step limit.
  [[nodiscard]] bool complete() const { return steps_ < kMostSteps; }

 private:
  static constexpr std::size_t kMostSteps = 300'000;
  using Failed = std::pair<std::size_t, std::vector<double>>;

  [[nodiscard]] double limit(const Constraint& constraint) const { return constraint.time ? time_ : memory_; }
  [[nodiscard]] Loads between(std::size_t first, std::size_t end) const;
  [[nodiscard]] double amount(const Constraint& constraint, const Cut& cut) const;
  void place(std::size_t stage, std::size_t first, std::size_t end);
  [[nodiscard]] bool has_room(std::size_t stage, std::size_t first) const;
  [[nodiscard]] Failed state(std::size_t stage, std::size_t first) const;
  bool visit(std::size_t stage, std::size_t first);

  std::vector<Constraint> constraints_;
  std::vector<std::vector<double>> cheapest_;      // [constraint][factor]: minimum that one block adds
  std::vector<std::vector<std::size_t>> touched_;  // [stage]: constraints that depend on it
  std::vector<std::size_t> component_;             // [stage]: equal for stages that constraints connect
  std::vector<Loads> sums_;                        // [block]: sum of the loads of all earlier blocks
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

}  // namespace chimera
