#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/tracer.h"
#include "schedule/rank_layout.h"

namespace chimera {

/// Wall-clock compute time of a rank per step.
struct RankPace {
  RankId rank{0};
  double seconds = 0;
  /// Mean time of the same ops on other ranks; empty if some op runs only here.
  std::optional<double> elsewhere;
  /// Returns an upper bound on the time that a step waits for this rank.
  [[nodiscard]] double lost() const { return elsewhere && seconds > *elsewhere ? seconds - *elsewhere : 0; }
};

/// Smallest slowdown that is reported.
inline constexpr double kStragglerRatio = 1.1;

/// Returns times per step. `times`: [rank], sums over `steps` steps.
[[nodiscard]] std::vector<RankPace> paces(const std::vector<OpTimes>& times, std::int64_t steps);

/// Returns a table of all ranks, and a line for each straggler with its cost in a step of `step_seconds`.
[[nodiscard]] std::string straggler_report(const std::vector<RankPace>& ranks, double step_seconds);

}  // namespace chimera
