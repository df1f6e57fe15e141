#pragma once
// Where the stages live and which micro-batches each replica takes: a schedule before its ops are put in order.

#include <cstdint>
#include <vector>

#include "schedule/schedule.h"

namespace chimera {

struct Layout {
  std::int64_t workers = 0;
  std::int64_t stages = 0;                               // S: stages the model is cut into
  Placement placement;                                   // (replica, stage) -> worker
  std::vector<std::vector<MicroBatchId>> micro_batches;  // [replica], ascending
};

enum class PlacementKind {
  Linear,         ///< one replica, stage s on worker s
  Bidirectional,  ///< Chimera's 2f replicas of S = D v stages, f down and f up
  Rotated,        ///< 2f replicas of S = D stages in one direction, replica r begins on worker r D / 2f
  Loop,           ///< one replica of S = D v stages, stage s on worker s mod D
  Wave,           ///< one replica of S = 2 w D stages, there and back w times (w = 1: V)
};

/// The layout of a shape: D workers a pipeline, N micro-batches, and 2f pipelines of v chunks (Bidirectional), 2f
/// pipelines (Rotated), v chunks (Loop) or w waves (Wave). Bidirectional numbers micro-batches and replicas as the
/// schedule `chimera` does. Throws ConfigError where the shape does not fit the placement or has more ops than a search
/// can hold (kMostSearchedOps).
[[nodiscard]] Layout layout_of(PlacementKind kind, const PipelineShape& shape);

/// No problem of more ops is searched.
inline constexpr std::int64_t kMostSearchedOps = 4'000'000;

/// Throws ConfigError where a count is below 1, or a pipeline with that many stages on each worker has more ops than
/// that.
void require_searchable(const PipelineShape& shape, std::int64_t stages_a_worker);

/// [replica]: its micro-batches, where all are dealt out in turn.
[[nodiscard]] std::vector<std::vector<MicroBatchId>> deal_in_turn(std::int64_t micro_batches, std::int64_t replicas);

/// The layout's schedule without its ops.
[[nodiscard]] Schedule without_ops(const Layout& layout);

}  // namespace chimera
