#pragma once

// The exact part of `chimera search`, for small problems. To prove that no order is faster than the best one so far, it
// assumes a deadline just below this makespan. Windows (windows.h) computes from the deadline the range of possible
// start times (*window*) of each op. Branch and bound then decides the order of one pair of ops after the other, and
// backtracks when the deadline cannot be met. If it has visited the whole tree of decisions, the best makespan is
// proven. Each searcher in search.cc has a BranchAndBound for its part of the tree.

#include <algorithm>

#include "search/annealing.h"
#include "search/budget.h"
#include "search/instance.h"
#include "search/windows.h"

namespace chimera {

/// Exact depth-first search. A *state* is the windows and the decided pairs at a node of the tree. In each state, the
/// search narrows all windows, times the order of ops by the starts of their windows, and then branches: it tries both
/// orders of the pair of ops with the least slack (as in Brucker, Jurisch and Sievers, Discrete Applied Mathematics
/// 1994). Can be interrupted and resumed. Borrows the instance.
class BranchAndBound {
 public:
  /// Searches for orders that are faster than `makespan`, the makespan of a known schedule. `state` has windows that
  /// hold for every such order (raise_bound() in makespan_bound.h). With `digits` > 0, searches only a part of the
  /// tree: the binary digits of `part` are the first `digits` decisions. The parts 0 .. 2^digits - 1 together cover the
  /// tree.
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

  /// Searches until the phase is over or the part of the tree is exhausted. Replaces `best` by each better solution.
  /// Returns whether the part is exhausted: it then contains no order that is faster than `best`.
  bool run(Solution& best, Phase phase) {
    while (!open_.empty() && !phase.is_over()) {
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
    if (!is_admissible(instance_, orders)) return;
    const double makespan = Evaluator(instance_).makespan(orders);
    if (makespan < deadline_below(best.makespan)) best = {std::move(orders), makespan, "branch and bound"};
  }

  Windows windows_;
  const Instance& instance_;
  std::vector<Node> open_;  // a stack
};

/// Maximum number of ops of a problem for BranchAndBound.
inline constexpr std::int32_t kMaxExactOps = 480;

/// Returns whether branch and bound can solve the problem: it has at most kMaxExactOps ops, micro-batches have equal
/// work, and every op takes time (so that the earliest starts of ops determine an order).
[[nodiscard]] inline bool can_be_exact(const Instance& instance) {
  return instance.ops <= kMaxExactOps && instance.durations.empty() &&
         std::ranges::all_of(instance.queues,
                             [](const OpQueue& queue) { return queue.count == 0 || queue.duration > 0; });
}

}  // namespace chimera
