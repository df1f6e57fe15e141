#pragma once

// Placement and micro-batches of a schedule, before its ops are ordered. A user names a placement; layout_of() turns
// the name and the shape into workers of stages and micro-batches of replicas. The search then orders the ops.

#include <cstdint>
#include <vector>

#include "schedule/schedule.h"

namespace chimera {

struct Layout {
  std::int64_t workers = 0;
  std::int64_t stages = 0;                               // S: stages of the model
  Placement placement;                                   // (replica, stage) -> worker
  std::vector<std::vector<MicroBatchId>> micro_batches;  // [replica], ascending
  std::int64_t slices = 1;                               // k
};

enum class PlacementKind {
  Linear,         ///< one replica, stage s on worker s
  Bidirectional,  ///< Chimera's 2f replicas of S = D v stages, f down and f up
  Rotated,        ///< 2f replicas of S = D stages in one direction, replica r starts on worker r D / 2f
  Loop,           ///< one replica of S = D v stages, stage s on worker s mod D
  Wave,           ///< one replica of S = 2 w D stages, there and back w times (w = 1: V)
};

/// Returns the layout for D workers per pipeline, N micro-batches of k slices, and 2f pipelines of v chunks
/// (Bidirectional), 2f pipelines (Rotated), v chunks (Loop) or w waves (Wave). Bidirectional numbers micro-batches and
/// replicas as the schedule `chimera` does. Throws ConfigError if the shape does not fit the placement or exceeds
/// kMostSearchedOps.
[[nodiscard]] Layout layout_of(PlacementKind kind, const PipelineShape& shape);

inline constexpr std::int64_t kMostSearchedOps = 4'000'000;

/// Throws ConfigError if a count is below 1, or a pipeline with that many stages per worker exceeds kMostSearchedOps.
void require_searchable(const PipelineShape& shape, std::int64_t stages_a_worker);

/// Returns [replica]: its micro-batches, dealt round-robin.
[[nodiscard]] std::vector<std::vector<MicroBatchId>> deal_in_turn(std::int64_t micro_batches, std::int64_t replicas);

[[nodiscard]] Schedule without_ops(const Layout& layout);

}  // namespace chimera
