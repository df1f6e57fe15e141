#pragma once
// What every schedule on Chimera's placement shares: f down and f up pipelines through the same D workers.

#include <cstdint>
#include <optional>
#include <string>

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// Why the placement does not take the shape, with the legal values: loop_refusal() with `ops_each`, D is odd, or
/// `pipelines` is not twice a divisor of D/2.
[[nodiscard]] std::optional<std::string> chimera_placement_refusal(const PipelineShape& shape, std::int64_t ops_each);

/// How such schedules take --pipelines: 2 by default; plans try every legal number.
[[nodiscard]] TakenAxis bidirectional_pipelines();

/// How they take --chunks: 1 by default; plans try 1 and 2.
[[nodiscard]] TakenAxis bidirectional_chunks();

/// S = vD: the stages of a pipeline.
[[nodiscard]] std::int64_t chimera_stages(const PipelineShape& shape);

/// The stages of a pipeline go in waves through D places (wave_worker; one wave for v = 1, where stage s is in place
/// s). Place p of down pipeline i is worker (i D/f + p) mod D, of up pipeline i worker (i D/f + D-1-p) mod D. Replicas
/// are down 0 .. down f-1, up 0 .. up f-1. Source: Li and Hoefler, SC'21, figure 8; v = 2: Wu et al., 2024 (BitPipe).
[[nodiscard]] Placement chimera_placement(const PipelineShape& shape);

/// The stage that is chunk c, from 0 to v-1, of that replica on that worker: the inverse of chimera_placement.
[[nodiscard]] StageId stage_on(std::int64_t worker, std::int64_t replica, std::int64_t chunk,
                               const PipelineShape& shape);

/// The share of `count` micro-batches from `first` on that one pipeline runs. Shares are as even as can be; where some
/// are one larger, they are those of lower number, so down before up.
struct Share {
  std::int64_t first;
  std::int64_t count;
};
[[nodiscard]] Share share_of(std::int64_t pipeline, std::int64_t pipelines, std::int64_t first, std::int64_t count);

}  // namespace chimera
