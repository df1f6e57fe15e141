#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "plan/balance.h"
#include "schedule/schedule.h"

// What a cut into stages must keep to: linear constraints on what the blocks of the stages cost and hold.

// Finds cuts of blocks into stages that keep to linear constraints.

namespace chimera {

/// The fields of LayerLoad, in their order.
inline constexpr std::size_t kLoads = 7;
using Loads = std::array<double, kLoads>;
[[nodiscard]] Loads loads_of(const LayerLoad& layer);
[[nodiscard]] double product(const Loads& factors, const Loads& loads);

/// Something of one worker that is limited: the time of its ops, or the bytes that it holds at one of them. It is base
/// plus, over stages, the factors times the sum of the loads of the stage's blocks.
struct Constraint {
  bool time = false;
  double base = 0;                                          // of embedding, head and the stages' inputs
  std::vector<std::pair<std::size_t, Loads>> factors = {};  // of the stages that it depends on, ascending
  friend std::partial_ordering operator<=>(const Constraint&, const Constraint&) = default;
};

/// The constraints of all workers, each once. Bytes are limited at the ops where no other has more of every stage.
[[nodiscard]] std::vector<Constraint> time_constraints(const Schedule& schedule, const ModelLoads& loads,
                                                       bool recompute);
[[nodiscard]] std::vector<Constraint> memory_constraints(const Schedule& schedule, const ModelLoads& loads,
                                                         bool recompute);

/// [stage]: how many blocks it has, at least one.
using Cut = std::vector<std::int64_t>;

/// Decides stage by stage, from the first; leaves a branch where the blocks that are left fit nowhere, even the
/// cheapest ones, and where the same stages, blocks and amounts were seen to fail.
class CutSearch {
 public:
  /// `memory` limits those constraints that are not of time. Requires at least as many blocks as stages.
  CutSearch(std::vector<Constraint> constraints, const std::vector<LayerLoad>& blocks, std::size_t stages,
            double memory);

  /// The largest time of a worker with this cut.
  [[nodiscard]] double slowest(const Cut& cut) const;
  /// Whether all constraints hold with workers that take at most `time`.
  [[nodiscard]] bool holds(const Cut& cut, double time) const;

  /// Up to `most` cuts whose workers take at most `time`; those that are near to even come early.
  [[nodiscard]] std::vector<Cut> find(double time, std::size_t most);
  /// Whether the last find() looked everywhere, or found its `most`, before its limit of steps.
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
  std::vector<std::vector<double>> cheapest_;      // [constraint][its factors]: the least that one block adds
  std::vector<std::vector<std::size_t>> touched_;  // [stage]: constraints that depend on it
  std::vector<std::size_t> component_;             // [stage]: stages that workers hold together
  std::vector<Loads> sums_;                        // [block]: loads of all before it
  std::size_t stages_;
  double memory_;

  double time_ = 0;
  std::size_t most_ = 1;
  std::size_t steps_ = 0;
  std::vector<double> amounts_;  // [constraint]: with the cheapest block on each stage that is still to come
  Cut cut_;
  std::vector<Cut> found_;
  std::set<Failed> failed_;
};

}  // namespace chimera
