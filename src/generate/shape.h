#pragma once
// Parts of the generators: reasons to refuse a shape, placements, and axes. A generator calls empty_schedule() with a
// placement, and appends each worker's ops.

#include <optional>
#include <string>

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// Returns why no schedule has this shape: D, N or another parameter is not positive, or there are more than kMostOps
/// ops (`ops_each` per worker and micro-batch).
[[nodiscard]] std::optional<std::string> shape_error(const PipelineShape& shape, std::int64_t ops_each = 2);

/// Generator::refusal of a schedule that takes any D and N: shape_error().
template <std::int64_t kOpsEach>
[[nodiscard]] std::optional<std::string> refuse_bad_counts(const PipelineShape& shape) {
  return shape_error(shape, kOpsEach);
}

/// Returns why a schedule needs another D: it is not even, or not positive.
[[nodiscard]] std::optional<std::string> odd_stages(std::int64_t stages, const char* reason);

/// Returns why no schedule with v = `chunks` has this shape: shape_error(), or too many ops with `ops_each` per stage
/// and micro-batch.
[[nodiscard]] std::optional<std::string> loop_refusal(const PipelineShape& shape, std::int64_t ops_each);

/// Returns a schedule of the shape's D workers and N micro-batches, which have no ops yet. It has as many stages as the
/// placement.
[[nodiscard]] Schedule empty_schedule(const PipelineShape& shape, Placement placement);

/// Returns the i-th op of a kind on a stage, i from 0, if micro-batches go in ascending order, and their slices
/// ascending forward and descending backward.
[[nodiscard]] Op sliced_op(OpKind kind, ReplicaId replica, StageId stage, std::int64_t i, std::int64_t slices);

/// Returns the axis --slices: 1 by default and in plans.
[[nodiscard]] TakenAxis slices();

/// Returns replicas of `stages` stages, with stage s of replica r on worker worker_of(r, s).
template <class WorkerOf>
[[nodiscard]] Placement placement_by(std::int64_t replicas, std::int64_t stages, const WorkerOf& worker_of) {
  Placement placement;
  for (std::int64_t r = 0; r < replicas; ++r) {
    auto& row = placement.worker_of.emplace_back();
    for (std::int64_t s = 0; s < stages; ++s) row.emplace_back(worker_of(r, s));
  }
  return placement;
}

/// Returns a replica with stage s on worker s.
[[nodiscard]] Placement linear_placement(std::int64_t stages);

/// Returns a second replica in the opposite direction: stage s on workers s and D-1-s.
[[nodiscard]] Placement opposite_placement(std::int64_t stages);

/// Returns a replica with stage s on worker s mod D.
[[nodiscard]] Placement loop_placement(std::int64_t workers, std::int64_t chunks);

/// Returns replicas with stage s of replica r on worker (r D / replicas + s) mod D.
[[nodiscard]] Placement rotated_placement(std::int64_t stages, std::int64_t replicas);

/// Returns the worker of a stage if stages go down the workers and up again in waves: the smaller of t = s mod 2D and
/// 2D-1-t.
[[nodiscard]] std::int64_t wave_worker(std::int64_t stage, std::int64_t workers);

/// Returns the stage of the worker's chunk c: the inverse of wave_worker.
[[nodiscard]] std::int64_t wave_stage(std::int64_t worker, std::int64_t chunk, std::int64_t workers);

/// Returns a replica with stage s on wave_worker(s).
[[nodiscard]] Placement wave_placement(std::int64_t workers, std::int64_t chunks);

}  // namespace chimera
