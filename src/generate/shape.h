#pragma once
// What all generators ask of a shape.

#include <optional>
#include <string>

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// Why no schedule at all has the shape; none where some may. D, N and the other parameters must be positive and the
/// ops at most kMostOps, each of D workers running `ops_each` for each of N micro-batches.
[[nodiscard]] std::optional<std::string> insane(const PipelineShape& shape, std::int64_t ops_each = 2);

/// Throws ConfigError, `NAME: reason`, where there is a reason to refuse.
void require_shape(const char* schedule, const std::optional<std::string>& refusal);

/// Why no schedule with `chunks` virtual stages on each worker has the shape: insane(), or more than kMostOps, of which
/// each stage runs `ops_each` for each micro-batch.
[[nodiscard]] std::optional<std::string> loop_refusal(const PipelineShape& shape, std::int64_t ops_each);

/// How such schedules take --chunks: 2 by default; plans try 2 and 4.
[[nodiscard]] TakenAxis looped_chunks();

/// Why no schedule of `waves` waves of 2D stages has the shape: insane(), where each stage runs `ops_each` for each
/// micro-batch.
[[nodiscard]] std::optional<std::string> wave_refusal(const PipelineShape& shape, std::int64_t ops_each);

/// How such schedules take --waves: 1 by default; plans try 1 and 2.
[[nodiscard]] TakenAxis waves();

/// One replica: stage s on worker s.
[[nodiscard]] Placement linear_placement(std::int64_t stages);

/// One replica of `chunks` stages a worker that go round the workers: stage s on worker s mod D.
[[nodiscard]] Placement loop_placement(std::int64_t workers, std::int64_t chunks);

/// `replicas` of D stages in one direction, each begun D / replicas workers after the one before: stage s of replica r
/// on worker (r D / replicas + s) mod D.
[[nodiscard]] Placement rotated_placement(std::int64_t stages, std::int64_t replicas);

/// Where stages go down the workers and up again in waves, `chunks` of them on each worker: the worker of stage s,
/// which is t = s mod 2D, or 2D-1-t where that is less than D.
[[nodiscard]] std::int64_t wave_worker(std::int64_t stage, std::int64_t workers);

/// The stage that is chunk c of the worker, c from 0: the inverse of wave_worker.
[[nodiscard]] std::int64_t wave_stage(std::int64_t worker, std::int64_t chunk, std::int64_t workers);

/// One replica of `chunks` stages a worker in waves.
[[nodiscard]] Placement wave_placement(std::int64_t workers, std::int64_t chunks);

}  // namespace chimera
