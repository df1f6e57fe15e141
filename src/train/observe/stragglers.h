#pragma once

// Finds stragglers: ranks that are slower than others at the same ops (--report-stragglers). Stages of a pipeline take
// different times, so a rank is only compared with ranks that run the same ops: ranks with replicas of its stages, in
// its own or another data-parallel group. RunTimes gathers the op times of all ranks, compute_times_of_ranks() compares
// them, and straggler_report() returns the table to print.

#include <optional>
#include <string>
#include <vector>

#include "runtime/tracer.h"
#include "schedule/rank_layout.h"

namespace chimera {

/// Compute time of a rank in wall-clock seconds per step.
struct RankComputeTime {
  RankId rank{0};
  double seconds = 0;
  /// Time that the same ops take on other ranks, on average; empty if no other rank runs one of the ops.
  std::optional<double> elsewhere;
  /// Returns an upper bound on the seconds per step that other ranks wait for this one.
  [[nodiscard]] double lost() const { return elsewhere && seconds > *elsewhere ? seconds - *elsewhere : 0; }
};

/// A rank is a straggler if its ops take at least this many times as long as elsewhere.
inline constexpr double kStragglerRatio = 1.1;

/// Returns the compute time of each rank. `times` is indexed by rank, and holds sums over `steps` steps, at least 1.
[[nodiscard]] std::vector<RankComputeTime> compute_times_of_ranks(const std::vector<OpTimes>& times,
                                                                  std::int64_t steps);

/// Returns a table of all ranks, and for each straggler the seconds that a step, of `step_seconds`, loses to it.
[[nodiscard]] std::string straggler_report(const std::vector<RankComputeTime>& ranks, double step_seconds);

}  // namespace chimera
