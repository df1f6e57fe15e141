#pragma once
// The placement of the schedules chimera and chimera-zb (which worker holds which stage), and the distribution of
// micro-batches over their pipelines. A shape has 2f pipelines (PipelineShape::pipelines) on the same D workers, and
// each pipeline is a replica of the model. Half of them go down through the workers (0, 1, 2, ..), and half go up. Each
// has v stages (*chunks*) on every worker. With D = 4 and v = 1, these workers hold stages 0 to 3:
//
//   f = 1   down     0 1 2 3   up     3 2 1 0
//   f = 2   down 0   0 1 2 3   up 0   3 2 1 0
//           down 1   2 3 0 1   up 1   1 0 3 2    begins D/f workers further

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// Returns why the placement rejects the shape, with the legal values, or nothing if it accepts the shape. Reasons: D
/// is odd, `pipelines` is not twice a divisor of D/2, or a reason of loop_shape_error() (shape.h). `ops_each` is the
/// number of ops per micro-batch and stage: 2 (F, B), or 3 (F, I, W) with split backwards.
[[nodiscard]] std::optional<std::string> chimera_shape_error(const PipelineShape& shape, std::int64_t ops_each);

/// Returns the parameter --pipelines for Generator::axes: 2 by default; plans try every legal number.
[[nodiscard]] SupportedAxis bidirectional_pipelines();

/// Returns the parameter --chunks for Generator::axes: 1 by default; plans try 1 and 2.
[[nodiscard]] SupportedAxis bidirectional_chunks();

/// Returns the number of stages of a pipeline, v D.
[[nodiscard]] std::int64_t chimera_stages(const PipelineShape& shape);

/// Returns the placement. A pipeline visits the D workers in its own order: the p-th (from 0) is worker (i D/f + p) mod
/// D for down pipeline i, and worker (i D/f + D-1-p) mod D for up pipeline i. Its stages 0 to D-1 are on the
/// workers of this order from the first to the last, the next D stages from the last to the first, and so on
/// (wave_worker() in shape.h); with v = 1, stage s is on the s-th. The replicas are, in
/// order, down 0 .. down f-1, up 0 .. up f-1.
[[nodiscard]] Placement chimera_placement(const PipelineShape& shape);

/// Returns the stage that is the replica's chunk 0 .. v-1 on the worker: the inverse of chimera_placement().
[[nodiscard]] StageId stage_on(std::int64_t worker, std::int64_t replica, std::int64_t chunk,
                               const PipelineShape& shape);

/// The consecutive micro-batches that one pipeline gets.
struct MicroBatchRange {
  std::int64_t first;
  std::int64_t count;
};
/// Divides `count` micro-batches from `first` on among `pipelines` pipelines, and returns the range of one pipeline.
/// The sizes of the ranges differ by at most one; the first pipelines get more.
[[nodiscard]] MicroBatchRange micro_batches_of_pipeline(std::int64_t pipeline, std::int64_t pipelines,
                                                        std::int64_t first, std::int64_t count);

/// Returns [micro-batch]: its pipeline, as a replica. Each D micro-batches in a row are divided by
/// micro_batches_of_pipeline().
[[nodiscard]] std::vector<ReplicaId> assign_to_pipelines(const PipelineShape& shape);

}  // namespace chimera
