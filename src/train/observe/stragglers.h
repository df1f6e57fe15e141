#pragma once
// Which ranks compute more slowly than others that do the same: --report-stragglers.

#include <optional>
#include <string>
#include <vector>

#include "runtime/tracer.h"
#include "schedule/rank_layout.h"

namespace chimera {

/// What a rank computed in a step, on the clock.
struct RankPace {
  RankId rank{0};
  double seconds = 0;  ///< in ops
  /// What its ops take where other ranks run them: the mean of theirs, for each stage and kind. None where some op is
  /// run by this rank alone.
  std::optional<double> elsewhere;
  /// Seconds that a step waits at most because this rank is slower than others; 0 for one that is not.
  [[nodiscard]] double lost() const { return elsewhere && seconds > *elsewhere ? seconds - *elsewhere : 0; }
};

/// A rank that takes so much longer than others do is named.
inline constexpr double kStragglerRatio = 1.1;

/// `times`: [rank] sums over `steps` steps, the same stages on all.
[[nodiscard]] std::vector<RankPace> paces(const std::vector<OpTimes>& times, std::int64_t steps);

/// A table of all ranks, and a line for each that is slow with what a step of `step_seconds` loses to it.
[[nodiscard]] std::string straggler_report(const std::vector<RankPace>& ranks, double step_seconds);

}  // namespace chimera
