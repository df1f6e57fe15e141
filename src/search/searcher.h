#pragma once

#include <cstdint>
#include <optional>

#include "search/annealing.h"
#include "search/arrangement.h"
#include "search/branch_and_bound.h"
#include "search/budget.h"

namespace chimera {

/// Independent of the machine, so that equal seeds give equal results.
inline constexpr int kSearchers = 2;

/// A search thread: local search with its own random numbers and, for small problems, its part of the tree of orders.
/// Shares nothing while it runs. Holds a reference to the arrangement.
class Searcher {
 public:
  /// `number`, in 0 .. kSearchers - 1, selects the part of the tree. All searchers get the same `makespan`, which some
  /// schedule has, and `state`, facts true of every schedule that beats it. `goal` is a lower bound.
  Searcher(const Arrangement& arrangement, double goal, double makespan, const WindowState& state, int number,
           std::uint64_t seed);

  /// Adopts better solutions of other searchers.
  void learn(const Best& symmetric, const Best& whole);

  /// Searches until the budget is used, the goal is reached, or its part of the tree is exhausted.
  void run(Budget& budget);

  [[nodiscard]] const Best& symmetric() const { return symmetric_; }
  [[nodiscard]] const Best& whole() const { return whole_; }
  [[nodiscard]] const ParetoFront& front() const { return front_; }
  [[nodiscard]] bool exhausted() const { return exhausted_; }

 private:
  void search_locally(const Phase& phase);
  void improve(const Instance& instance, Best& best, Phase phase);
  void search_exactly(Phase phase);

  const Arrangement& arrangement_;
  double goal_;
  RandomSource random_;
  std::optional<BranchAndBound> exact_;
  bool exhausted_ = false;
  Best symmetric_;
  Best whole_;
  ParetoFront front_;
};

}  // namespace chimera
