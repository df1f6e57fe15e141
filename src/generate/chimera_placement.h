#pragma once
// What every schedule on Chimera's placement shares: f down and f up pipelines through the same D workers.

#include <cstdint>
#include <string>

#include "schedule/schedule.h"

namespace chimera {

/// Throws ConfigError, naming the legal values, unless the shape is sane (require_sane), D is even and `pipelines` is
/// twice a divisor of D/2.
void require_chimera_shape(const std::string& schedule, const PipelineShape& shape, std::int64_t ops_each);

/// Down pipeline i holds stage s on worker (i D/f + s) mod D, up pipeline i on worker (i D/f + D-1-s) mod D. Replicas
/// are down 0 .. down f-1, up 0 .. up f-1. Source: Li and Hoefler, SC'21, figure 8.
[[nodiscard]] Placement chimera_placement(std::int64_t depth, std::int64_t f);

/// The stage of that replica on that worker: the inverse of chimera_placement.
[[nodiscard]] StageId stage_on(std::int64_t worker, std::int64_t replica, std::int64_t depth, std::int64_t f);

/// What a pipeline runs of `count` micro-batches from `first` on: as even a share as can be; where some get one more,
/// those of lower number, so down before up.
struct Share {
  std::int64_t first;
  std::int64_t count;
};
[[nodiscard]] Share share_of(std::int64_t pipeline, std::int64_t pipelines, std::int64_t first, std::int64_t count);

}  // namespace chimera
