#include "search/raised_bound.h"

#include <algorithm>
#include <utility>

namespace chimera {
namespace {

std::size_t ops_of(const Instance& instance, const std::vector<std::int32_t>& chains) {
  std::size_t ops = 0;
  for (const std::int32_t chain : chains) {
    for (LaneIndex step = 0; step < kLanesOfChain; ++step) {
      ops += static_cast<std::size_t>(instance.lanes[static_cast<std::size_t>(kLanesOfChain * chain + step)].count);
    }
  }
  return ops;
}

/// A lower bound above `bound`, at most `open`, which is not refuted. `known`: what is so in every schedule that ends
/// by `open`. `conclude(state, deadline)` adds to the state what follows, or returns false where no schedule ends by
/// then.
template <typename Conclude>
double bisect(double bound, double open, double close, WindowState known, const Phase& phase, Conclude conclude) {
  while (open - bound > close * open && !phase.over()) {
    const double middle = (bound + open) / 2;
    WindowState state = known;
    if (!conclude(state, middle)) {
      bound = middle;
      continue;
    }
    open = middle;
    known = std::move(state);  // what must be so by some time must be so earlier
  }
  return bound;
}

}  // namespace

RaisedBound raise_bound(const Instance& instance, double bound, double makespan, Phase phase) {
  constexpr double kClose = 1e-4;
  constexpr double kCloseByProbing = 4e-4;
  constexpr double kShareOfEach = 0.5;  // of the time that is left
  const bool is_large = std::ranges::any_of(
      instance.chains, [&](const auto& chains) { return ops_of(instance, chains) > kMostNarrowedOps; });
  if (is_large) return {bound, {}};
  Windows windows(instance);
  RaisedBound raised{bound, windows.at_start()};
  const double almost = deadline_below(makespan);
  if (bound >= almost || phase.over()) return raised;
  const auto narrow = [&](WindowState& state, double deadline) {
    phase.count(kTimedForAState);
    return windows.narrow(state, deadline);
  };
  const auto probe = [&](WindowState& state, double deadline) {
    return windows.probe(state, deadline, Phase(phase, kShareOfEach));
  };
  if (!narrow(raised.state, almost)) return {makespan, {}};
  raised.bound = bisect(raised.bound, almost, kClose, raised.state, phase, narrow);
  if (!probe(raised.state, almost)) return {makespan, {}};
  raised.bound = bisect(raised.bound, almost, kCloseByProbing, raised.state, phase, probe);
  return raised;
}

}  // namespace chimera
