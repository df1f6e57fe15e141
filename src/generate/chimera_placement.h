#pragma once
// The placement of the schedules chimera and chimera-zb, and the distribution of micro-batches over their pipelines. f
// pipelines go down through D workers (0, 1, 2, ..) and f go up; each pipeline has v stages on every worker. Each is a
// replica of the model. The workers of stages 0 to 3 with D = 4 and v = 1:
//
//   f = 1   down     0 1 2 3   up     3 2 1 0
//   f = 2   down 0   0 1 2 3   up 0   3 2 1 0
//           down 1   2 3 0 1   up 1   1 0 3 2    D/f workers further

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// Returns why the placement rejects the shape, with the legal values, or nothing if it accepts the shape. Reasons: odd
/// D, `pipelines` that is not twice a divisor of D/2, and the reasons of loop_shape_error(). `ops_each` is the number
/// of ops per micro-batch and stage.
[[nodiscard]] std::optional<std::string> chimera_shape_error(const PipelineShape& shape, std::int64_t ops_each);

/// Returns the axis --pipelines: 2 by default; plans try every legal number.
[[nodiscard]] SupportedAxis bidirectional_pipelines();

/// Returns the axis --chunks: 1 by default; plans try 1 and 2.
[[nodiscard]] SupportedAxis bidirectional_chunks();

/// Returns S = vD, the stages of a pipeline.
[[nodiscard]] std::int64_t chimera_stages(const PipelineShape& shape);

/// Returns f down and f up pipelines on the same D workers. A pipeline has D places, and its stages go through them in
/// waves (wave_worker(); for v = 1 stage s has place s). Place p of down pipeline i is worker (i D/f + p) mod D. Place
/// p of up pipeline i is worker (i D/f + D-1-p) mod D. The replicas are, in order, down 0 .. down f-1, up 0 .. up f-1.
/// The sources are those of the schedule chimera (chimera.cc).
[[nodiscard]] Placement chimera_placement(const PipelineShape& shape);

/// Returns the stage of the replica on the worker, for chunk 0 to v-1: the inverse of chimera_placement().
[[nodiscard]] StageId stage_on(std::int64_t worker, std::int64_t replica, std::int64_t chunk,
                               const PipelineShape& shape);

/// The consecutive micro-batches that one pipeline gets.
struct MicroBatchRange {
  std::int64_t first;
  std::int64_t count;
};
/// Divides `count` micro-batches from `first` on among `pipelines` pipelines, and returns those of one pipeline. Their
/// numbers differ by at most one; the first pipelines get more.
[[nodiscard]] MicroBatchRange micro_batches_of_pipeline(std::int64_t pipeline, std::int64_t pipelines,
                                                        std::int64_t first, std::int64_t count);

/// Returns the pipeline of each micro-batch. Each D micro-batches in a row are divided by micro_batches_of_pipeline().
[[nodiscard]] std::vector<ReplicaId> assign_to_pipelines(const PipelineShape& shape);

}  // namespace chimera
