#pragma once

// One of several independent searches for a faster schedule in `chimera search`. search.cc creates kSearchers searchers
// with different seeds and runs them in rounds, on threads if there are several cores. Searchers share nothing during a
// round. After it, search.cc merges their results, and learn() gives the best ones to all searchers. run() first
// improves orders by simulated annealing (annealing.h): the symmetric orders of the folded problem if there is one
// (arrangement.h), then the orders of all workers. If the problem is small enough, it then searches its part of the
// tree of orders exactly (branch_and_bound.h).

#include <cstdint>
#include <optional>

#include "search/annealing.h"
#include "search/arrangement.h"
#include "search/branch_and_bound.h"
#include "search/budget.h"

namespace chimera {

/// Does not depend on the number of cores, so that equal seeds give equal results.
inline constexpr int kSearchers = 2;

/// Holds a reference to the arrangement.
class Searcher {
 public:
  /// `number`, from 0 to kSearchers - 1, selects the part of the tree. `makespan` is the makespan of a known schedule,
  /// and `state` holds facts that are true of every faster schedule; both are the same for all searchers. `goal` is a
  /// lower bound of the makespan.
  Searcher(const Arrangement& arrangement, double goal, double makespan, const WindowState& state, int number,
           std::uint64_t seed);

  /// Replaces symmetric() and whole() by these solutions if they are better.
  void learn(const Best& symmetric, const Best& whole);

  /// Searches until the budget is used, the goal is reached, or its part of the tree is exhausted.
  void run(Budget& budget);

  /// Returns the best orders of the folded problem, if the arrangement has one.
  [[nodiscard]] const Best& symmetric() const { return symmetric_; }
  /// Returns the best orders of all workers.
  [[nodiscard]] const Best& whole() const { return whole_; }
  /// Returns this searcher's solutions that no other beats in both makespan and memory.
  [[nodiscard]] const ParetoFront& front() const { return front_; }
  /// Returns whether its part of the tree contains no order better than whole().
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
