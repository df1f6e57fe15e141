#pragma once

// Input of `chimera search`: a schedule before its ops are ordered. Bidirectional schedules have several *replicas*
// (copies of the model) on the same workers. A SearchLayout says which worker holds each stage of each replica, and
// which micro-batches each replica processes; the search then finds the order of ops. make_search_layout() makes it
// from the placement that a user chooses (--placement) and the shape. search_layout_of() (answers/search_answer.h)
// takes it from an existing schedule.

#include "schedule/schedule.h"

namespace chimera {

/// A schedule without an order of ops. The letters are those of PipelineShape (schedule/pipeline_shape.h), but `stages`
/// is S here, and D there.
struct SearchLayout {
  std::int64_t workers = 0;                              // D: workers of a data-parallel group
  std::int64_t stages = 0;                               // S: stages of the model
  Placement placement;                                   // (replica, stage) -> worker
  std::vector<std::vector<MicroBatchId>> micro_batches;  // [replica], ascending
  std::int64_t slices = 1;                               // k: slices of a micro-batch's tokens, each with its own ops
  double micro_batch_scale = 1;  // size of a micro-batch relative to --micro-batch-size (Schedule)
};

/// How stages are placed on D workers. The shape gives 2f (pipelines), v (chunks: stages of a replica on each worker)
/// and w (waves).
enum class PlacementKind {
  Linear,         ///< one replica, stage s on worker s
  Bidirectional,  ///< Chimera's 2f replicas of S = D v stages: half of them go down the workers, half go up
  Rotated,        ///< 2f replicas of S = D stages that all go down; stage 0 of replica r is on worker r D / 2f
  Loop,           ///< one replica of S = D v stages, stage s on worker s mod D
  Wave,           ///< one replica of S = 2 w D stages, which go down the workers and up again w times (w = 1: V)
};

/// Returns the layout of D workers (`shape.stages`), N micro-batches and k slices. It also uses 2f and v of the shape
/// (Bidirectional), 2f (Rotated), v (Loop) or w (Wave). Bidirectional numbers micro-batches and replicas as the
/// schedule `chimera` does. Throws ConfigError if the shape does not fit the placement, or if there would be more than
/// kMaxSearchedOps ops.
[[nodiscard]] SearchLayout make_search_layout(PlacementKind kind, const PipelineShape& shape);

/// Maximum number of ops in a search.
inline constexpr std::int64_t kMaxSearchedOps = 4'000'000;

/// Throws ConfigError if shape_error() (generate/shape.h) refuses the shape, or if a schedule with that many stages per
/// worker would have more than kMaxSearchedOps ops.
void require_searchable(const PipelineShape& shape, std::int64_t stages_per_worker);

/// Returns [replica]: its micro-batches, assigned round-robin.
[[nodiscard]] std::vector<std::vector<MicroBatchId>> assign_round_robin(std::int64_t micro_batches,
                                                                        std::int64_t replicas);

/// Returns the layout of a schedule's ops. Accepts any schedule; search_layout_of() throws ConfigError for those that
/// cannot be searched, such as asynchronous ones.
[[nodiscard]] SearchLayout layout_of(const Schedule& schedule);

/// Returns a schedule of this layout whose workers have no ops.
[[nodiscard]] Schedule without_ops(const SearchLayout& layout);

}  // namespace chimera
