#pragma once
// What every schedule on Chimera's placement shares: f down and f up pipelines through the same D workers.

#include <cstdint>
#include <optional>
#include <string>

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// Why the placement does not take the shape, with the legal values: it is insane() with `ops_each`, D is odd, or
/// `pipelines` is not twice a divisor of D/2.
[[nodiscard]] std::optional<std::string> chimera_placement_refusal(const PipelineShape& shape, std::int64_t ops_each);

/// How such schedules take --pipelines: 2 by default; plans try every legal number.
[[nodiscard]] TakenAxis bidirectional_pipelines();

/// Down pipeline i holds stage s on worker (i D/f + s) mod D, up pipeline i on worker (i D/f + D-1-s) mod D. Replicas
/// are down 0 .. down f-1, up 0 .. up f-1. Source: Li and Hoefler, SC'21, figure 8.
[[nodiscard]] Placement chimera_placement(std::int64_t depth, std::int64_t f);

/// The stage of that replica on that worker: the inverse of chimera_placement.
[[nodiscard]] StageId stage_on(std::int64_t worker, std::int64_t replica, std::int64_t depth, std::int64_t f);

/// The share of `count` micro-batches from `first` on that one pipeline runs. Shares are as even as can be; where some
/// are one larger, they are those of lower number, so down before up.
struct Share {
  std::int64_t first;
  std::int64_t count;
};
[[nodiscard]] Share share_of(std::int64_t pipeline, std::int64_t pipelines, std::int64_t first, std::int64_t count);

}  // namespace chimera
