#pragma once

// Finds ranks that are slower than the others at the same ops (--report-stragglers). In a pipeline, stages differ, so a
// slow rank shows only against ranks that run the same ops: replicas of its stages, or other data-parallel groups.
// RunTimes gathers the op times of all ranks; paces() compares them, and straggler_report() prints the result.

#include <optional>
#include <string>
#include <vector>

#include "runtime/tracer.h"
#include "schedule/rank_layout.h"

namespace chimera {

/// Compute time of a rank in wall-clock seconds per step.
struct RankPace {
  RankId rank{0};
  double seconds = 0;
  /// Time at the ops' mean speed on other ranks; empty if one of them runs on no other rank.
  std::optional<double> elsewhere;
  /// Returns an upper bound on the seconds per step that others wait for this rank.
  [[nodiscard]] double lost() const { return elsewhere && seconds > *elsewhere ? seconds - *elsewhere : 0; }
};

/// Minimum slowdown of a straggler.
inline constexpr double kStragglerRatio = 1.1;

/// `times` [rank] holds sums over `steps` steps, at least 1.
[[nodiscard]] std::vector<RankPace> paces(const std::vector<OpTimes>& times, std::int64_t steps);

/// Returns a table of all ranks, and for each straggler the seconds that a step, of `step_seconds`, loses to it.
[[nodiscard]] std::string straggler_report(const std::vector<RankPace>& ranks, double step_seconds);

}  // namespace chimera
