#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "search/annealing.h"
#include "search/budget.h"
#include "search/instance.h"
#include "search/windows.h"

namespace chimera {

/// Exact depth-first search. Narrows all windows, then tries both orders of the pair of ops with the least slack
/// (branching as in Brucker, Jurisch and Sievers, Discrete Applied Mathematics 1994), and times the order of the heads.
/// Can be interrupted and resumed. Holds a reference to the instance.
class BranchAndBound {
 public:
  /// Takes a part of the tree of orders that beat `makespan`, which some schedule attains or beats. The binary digits
  /// of `part` are the first `digits` decisions. All parts for the same `makespan` and `state` cover the tree. `state`
  /// holds facts true of every schedule that beats `makespan`.
  BranchAndBound(const Instance& instance, double makespan, WindowState state, std::int64_t part = 0, int digits = 0);

  /// Searches until the phase ends, and replaces `best` by better solutions. Returns whether no order in its part beats
  /// `best`.
  bool run(Solution& best, Phase phase);

 private:
  /// An open state; `added` is its last precedence.
  struct Node {
    WindowState state;
    std::optional<Precedence> added;
  };

  void expand(Node node, Solution& best);
  void time_orders(const WindowState& state, Solution& best);

  Windows windows_;
  const Instance& instance_;
  std::vector<Node> open_;  // a stack
};

/// Returns whether the problem has at most kMostExactOps ops, and every op takes time, so that heads order the ops.
[[nodiscard]] bool can_be_exact(const Instance& instance);

inline constexpr std::int32_t kMostExactOps = 480;

}  // namespace chimera
