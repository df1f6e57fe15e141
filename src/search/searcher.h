#pragma once
// One of the threads that work on the same problem.

#include <cstdint>
#include <optional>

#include "search/annealing.h"
#include "search/arrangement.h"
#include "search/branch_and_bound.h"
#include "search/budget.h"

namespace chimera {

/// How many work on a problem, whatever the machine has: so that the same seed gives the same result anywhere.
inline constexpr int kSearchers = 2;

/// Searches a problem by local search with random numbers of its own and, where the problem is small enough, its part
/// of the tree of all orders. Shares nothing with the others while it runs; they tell each other what they found
/// between rounds. Holds a reference to the arrangement.
class Searcher {
 public:
  /// `number`: 0 .. kSearchers - 1. All are given one `makespan`, which some schedule has: the parts of the tree of
  /// those that beat it, of which `state` tells what is so, are theirs. `goal`: no makespan is less.
  Searcher(const Arrangement& arrangement, double goal, double makespan, const WindowState& state, int number,
           std::uint64_t seed);

  /// Goes on from these, if they are better than its own.
  void learn(const Best& symmetric, const Best& whole);

  /// Searches until the budget is used, or the goal is reached, or its part of the tree is done.
  void run(Budget& budget);

  [[nodiscard]] const Best& symmetric() const { return symmetric_; }
  [[nodiscard]] const Best& whole() const { return whole_; }
  [[nodiscard]] const ParetoFront& front() const { return front_; }
  /// Whether nothing in its part of the tree beats the best.
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
