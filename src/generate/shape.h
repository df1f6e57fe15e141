#pragma once

#include <optional>
#include <string>

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// Returns why no schedule has this shape: D, N or another parameter is not positive, or there are more than kMostOps
/// ops (`ops_each` per worker and micro-batch).
[[nodiscard]] std::optional<std::string> shape_error(const PipelineShape& shape, std::int64_t ops_each = 2);

/// Throws ConfigError, `NAME: reason`, if there is a reason.
void require_shape(const char* schedule, const std::optional<std::string>& refusal);

/// Returns why no schedule with v = `chunks` has this shape: shape_error(), or too many ops with `ops_each` per stage
/// and micro-batch.
[[nodiscard]] std::optional<std::string> loop_refusal(const PipelineShape& shape, std::int64_t ops_each);

/// Returns the axis --chunks: 2 by default; plans try 2 and 4.
[[nodiscard]] TakenAxis looped_chunks();

/// Returns why no schedule of waves has this shape: shape_error() with `ops_each` ops per stage and micro-batch.
[[nodiscard]] std::optional<std::string> wave_refusal(const PipelineShape& shape, std::int64_t ops_each);

/// Returns the i-th op of a kind on a stage, i from 0, if micro-batches go in ascending order, and their slices
/// ascending forward and descending backward.
[[nodiscard]] Op sliced_op(OpKind kind, ReplicaId replica, StageId stage, std::int64_t i, std::int64_t slices);

/// Returns the axis --slices: 1 by default and in plans.
[[nodiscard]] TakenAxis slices();

/// Returns the axis --waves: 1 by default; plans try 1 and 2.
[[nodiscard]] TakenAxis waves();

/// Returns a replica with stage s on worker s.
[[nodiscard]] Placement linear_placement(std::int64_t stages);

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
