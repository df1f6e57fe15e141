#include "generate/chimera_placement.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "generate/shape.h"

namespace chimera {

void require_chimera_shape(const std::string& schedule, const PipelineShape& shape, std::int64_t ops_each) {
  require_sane(schedule, shape, ops_each);
  if (shape.stages % 2 != 0) {
    throw ConfigError(fmt::format("{}: --stages must be even, not {} (with odd D both directions want the same slots)",
                                  schedule, shape.stages));
  }
  if (shape.pipelines % 2 != 0 || (shape.stages / 2) % (shape.pipelines / 2) != 0) {
    std::string legal;
    for (std::int64_t f = 1; f <= std::min<std::int64_t>(shape.stages / 2, 64); ++f) {
      if ((shape.stages / 2) % f == 0) legal += fmt::format("{}{}", legal.empty() ? "" : ", ", 2 * f);
    }
    throw ConfigError(fmt::format("{}: --pipelines must be twice a divisor of D/2 = {}: {}; not {}", schedule,
                                  shape.stages / 2, legal, shape.pipelines));
  }
  if (shape.stages > kMostOps / shape.pipelines) {
    throw ConfigError(fmt::format("{}: {} pipelines of {} stages are more than {} stages in all; use fewer of either",
                                  schedule, shape.pipelines, shape.stages, kMostOps));
  }
}

Placement chimera_placement(std::int64_t depth, std::int64_t f) {
  Placement placement;
  for (const bool down : {true, false}) {
    for (std::int64_t i = 0; i < f; ++i) {
      auto& row = placement.worker_of.emplace_back();
      for (std::int64_t s = 0; s < depth; ++s) {
        row.emplace_back((i * (depth / f) + (down ? s : depth - 1 - s)) % depth);
      }
    }
  }
  return placement;
}

StageId stage_on(std::int64_t worker, std::int64_t replica, std::int64_t depth, std::int64_t f) {
  const std::int64_t distance = (worker - replica % f * (depth / f) + depth) % depth;
  return StageId(replica < f ? distance : depth - 1 - distance);
}

Share share_of(std::int64_t pipeline, std::int64_t pipelines, std::int64_t first, std::int64_t count) {
  const std::int64_t least = count / pipelines;
  const std::int64_t extra = count % pipelines;
  return {first + pipeline * least + std::min(pipeline, extra), least + (pipeline < extra ? 1 : 0)};
}

}  // namespace chimera
