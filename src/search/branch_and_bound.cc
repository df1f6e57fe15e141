#include "search/branch_and_bound.h"

#include <algorithm>
#include <utility>

#include "search/evaluator.h"

namespace chimera {

BranchAndBound::BranchAndBound(const Instance& instance, std::int64_t part, int digits)
    : windows_(instance), instance_(instance), part_(part), digits_(digits) {
  open_.push_back({windows_.at_start(), std::nullopt, 0});
}

bool BranchAndBound::run(Solution& best, Phase phase) {
  while (!open_.empty() && !phase.over()) {
    phase.count(kTimedForAState);
    Node node = std::move(open_.back());
    open_.pop_back();
    expand(std::move(node), best);
  }
  return open_.empty();
}

void BranchAndBound::expand(Node node, Solution& best) {
  WindowState& state = node.state;
  if (node.added ? !windows_.narrow(state, deadline(best), *node.added) : !windows_.narrow(state, deadline(best))) {
    return;
  }
  time_orders(state, best);
  const auto choice = windows_.tightest_choice(state);
  if (!choice) return;
  const Precedence other{choice->second, choice->first};
  const int depth = node.depth + 1;
  const bool fixed = depth <= digits_;
  const bool turned = fixed && ((part_ >> (depth - 1)) & 1) != 0;
  if (!fixed || turned) open_.push_back({state, other, depth});
  if (!turned) open_.push_back({std::move(state), *choice, depth});
}

void BranchAndBound::time_orders(const WindowState& state, Solution& best) {
  Orders orders = windows_.orders_by_head(state);
  if (!admissible(instance_, orders)) return;
  const double makespan = Evaluator(instance_).makespan(orders);
  if (makespan < best.makespan * (1 - kRounding)) best = {std::move(orders), makespan};
}

/// Beyond which nothing is better, but for rounding.
double BranchAndBound::deadline(const Solution& best) const { return best.makespan * (1 - kRounding); }

bool can_be_exact(const Instance& instance) {
  if (instance.ops > kMostExactOps) return false;
  return std::all_of(instance.lanes.begin(), instance.lanes.end(),
                     [](const Lane& lane) { return lane.count == 0 || lane.duration > 0; });
}

double raised_bound(const Instance& instance, double bound, double makespan, Phase phase) {
  constexpr double kClose = 1e-4;
  for (const auto& chains : instance.chains) {
    std::size_t ops = 0;
    for (const std::int32_t chain : chains) {
      for (LaneIndex step = 0; step < kLanesOfChain; ++step) {
        ops += static_cast<std::size_t>(instance.lanes[static_cast<std::size_t>(kLanesOfChain * chain + step)].count);
      }
    }
    if (ops > kMostNarrowedOps) return bound;
  }
  Windows windows(instance);
  const auto refuted = [&](double deadline) {
    phase.count(kTimedForAState);
    WindowState state = windows.at_start();
    return !windows.narrow(state, deadline);
  };
  const double almost = makespan * (1 - kRounding);
  if (bound >= almost || phase.over()) return bound;
  if (refuted(almost)) return makespan;
  double open = almost;
  while (open - bound > kClose * open && !phase.over()) {
    const double middle = (bound + open) / 2;
    (refuted(middle) ? bound : open) = middle;
  }
  return bound;
}

}  // namespace chimera
