#pragma once

// The exact part of the search, for small problems. Windows (windows.h) concludes what it can from a deadline; branch
// and bound then decides one undecided pair of ops after the other, and goes back when a deadline cannot be met. If it
// exhausts its tree, the best makespan is proven. Each searcher (search.cc) has one, with a part of the tree.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
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
  BranchAndBound(const Instance& instance, double makespan, WindowState state, std::int64_t part = 0, int digits = 0)
      : windows_(instance), instance_(instance) {
    const double deadline = deadline_below(makespan);
    if (!windows_.narrow(state, deadline)) return;
    for (int digit = 0; digit < digits; ++digit) {
      const auto choice = windows_.tightest_choice(state);
      const bool is_turned = ((part >> digit) & 1) != 0;
      if (!choice && is_turned) return;  // the remaining order belongs to the part with digit 0
      if (choice && !windows_.narrow(state, deadline, is_turned ? turned(*choice) : *choice)) return;
    }
    open_.push_back({std::move(state), std::nullopt});
  }

  /// Searches until the phase ends, and replaces `best` by better solutions. Returns whether no order in its part beats
  /// `best`.
  bool run(Solution& best, Phase phase) {
    while (!open_.empty() && !phase.over()) {
      phase.count(kTimedForAState);
      Node node = std::move(open_.back());
      open_.pop_back();
      expand(std::move(node), best);
    }
    return open_.empty();
  }

 private:
  static Precedence turned(const Precedence& choice) { return {choice.second, choice.first}; }

  /// An open state; `added` is its last precedence.
  struct Node {
    WindowState state;
    std::optional<Precedence> added;
  };

  /// The more promising order of the pair is pushed last, so that it is searched first.
  void expand(Node node, Solution& best) {
    WindowState& state = node.state;
    const double deadline = deadline_below(best.makespan);
    if (node.added ? !windows_.narrow(state, deadline, *node.added) : !windows_.narrow(state, deadline)) return;
    time_orders(state, best);
    const auto choice = windows_.tightest_choice(state);
    if (!choice) return;
    open_.push_back({state, turned(*choice)});
    open_.push_back({std::move(state), *choice});
  }
  /// Any admissible order is a candidate. A better makespan shortens the deadline of all open states.
  void time_orders(const WindowState& state, Solution& best) {
    Orders orders = windows_.orders_by_head(state);
    if (!admissible(instance_, orders)) return;
    const double makespan = Evaluator(instance_).makespan(orders);
    if (makespan < deadline_below(best.makespan)) best = {std::move(orders), makespan, "branch and bound"};
  }

  Windows windows_;
  const Instance& instance_;
  std::vector<Node> open_;  // a stack
};

inline constexpr std::int32_t kMostExactOps = 480;

/// Returns whether the problem has at most kMostExactOps ops, and every op takes time, so that heads order the ops.
[[nodiscard]] inline bool can_be_exact(const Instance& instance) {
  return instance.ops <= kMostExactOps &&
         std::ranges::all_of(instance.lanes, [](const Lane& lane) { return lane.count == 0 || lane.duration > 0; });
}

}  // namespace chimera
