#pragma once
// The placement of chimera and chimera-zb: f pipelines down and f up through D workers, with v stages of each pipeline
// on every worker, and the deal of micro-batches to the pipelines. The workers of
// stages 0 to 3 with D = 4 and v = 1:
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

/// Returns why the placement rejects the shape, with the legal values: loop_refusal(), odd D, or `pipelines` that is
/// not twice a divisor of D/2.
[[nodiscard]] std::optional<std::string> chimera_placement_refusal(const PipelineShape& shape, std::int64_t ops_each);

/// Returns the axis --pipelines: 2 by default; plans try every legal number.
[[nodiscard]] TakenAxis bidirectional_pipelines();

/// Returns the axis --chunks: 1 by default; plans try 1 and 2.
[[nodiscard]] TakenAxis bidirectional_chunks();

/// Returns S = vD, the stages of a pipeline.
[[nodiscard]] std::int64_t chimera_stages(const PipelineShape& shape);

/// Returns f down and f up pipelines on the same D workers. A pipeline's stages go in waves through D places
/// (wave_worker; for v = 1 stage s has place s). Place p of down pipeline i is worker (i D/f + p) mod D, of up pipeline
/// i worker (i D/f + D-1-p) mod D. Replicas are down 0 .. down f-1, up 0 .. up f-1. Sources: see chimera().
[[nodiscard]] Placement chimera_placement(const PipelineShape& shape);

/// Returns the stage of chunk c (0 to v-1) of the replica on the worker: the inverse of chimera_placement.
[[nodiscard]] StageId stage_on(std::int64_t worker, std::int64_t replica, std::int64_t chunk,
                               const PipelineShape& shape);

/// A pipeline's part of `count` micro-batches from `first` on. Sizes differ by at most one, larger ones first.
struct Share {
  std::int64_t first;
  std::int64_t count;
};
[[nodiscard]] Share share_of(std::int64_t pipeline, std::int64_t pipelines, std::int64_t first, std::int64_t count);

/// Returns each micro-batch's pipeline, dealt in units of D.
[[nodiscard]] std::vector<ReplicaId> deal_out(const PipelineShape& shape);

}  // namespace chimera
