#include "search/arrangement.h"

#include <algorithm>

#include "search/limits.h"

namespace chimera {

void take_if_better(Best& best, const Best& other) {
  if (other.solution.makespan < best.solution.makespan) best = other;
}

bool note(ParetoFront& front, const Arrangement& arrangement, const Instance& instance, const Best& found) {
  const std::vector<double> size(instance.replica.size(), units_of_stage(arrangement.problem.layout));
  const auto& [orders, makespan] = found.solution;
  double peak = 0;
  for (const auto& order : orders) peak = std::max(peak, peak_of(instance, size, order));
  if (makespan == kStuck || !front.admits(makespan, peak)) return false;
  const bool of_all = &instance == &arrangement.whole;
  front.add({of_all ? orders : unfold(arrangement.problem, *arrangement.folded, orders), makespan, peak, found.origin});
  return front.finds().front().makespan == makespan;
}

}  // namespace chimera
