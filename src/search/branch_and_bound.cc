#include "search/branch_and_bound.h"

#include <algorithm>
#include <utility>

#include "search/evaluator.h"

namespace chimera {
namespace {

Precedence turned(const Precedence& choice) { return {choice.second, choice.first}; }

}  // namespace

BranchAndBound::BranchAndBound(const Instance& instance, double makespan, WindowState state, std::int64_t part,
                               int digits)
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
  const double deadline = deadline_below(best.makespan);
  if (node.added ? !windows_.narrow(state, deadline, *node.added) : !windows_.narrow(state, deadline)) return;
  time_orders(state, best);
  const auto choice = windows_.tightest_choice(state);
  if (!choice) return;
  open_.push_back({state, turned(*choice)});
  open_.push_back({std::move(state), *choice});
}

void BranchAndBound::time_orders(const WindowState& state, Solution& best) {
  Orders orders = windows_.orders_by_head(state);
  if (!admissible(instance_, orders)) return;
  const double makespan = Evaluator(instance_).makespan(orders);
  if (makespan < deadline_below(best.makespan)) best = {std::move(orders), makespan};
}

bool can_be_exact(const Instance& instance) {
  if (instance.ops > kMostExactOps) return false;
  return std::all_of(instance.lanes.begin(), instance.lanes.end(),
                     [](const Lane& lane) { return lane.count == 0 || lane.duration > 0; });
}

}  // namespace chimera
