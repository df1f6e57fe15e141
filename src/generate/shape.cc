#include "generate/shape.h"

#include <fmt/format.h>

#include "core/error.h"

namespace chimera {

void require_sane(const std::string& schedule, const PipelineShape& shape, std::int64_t ops_each) {
  const auto positive = [&](const char* what, std::int64_t value) {
    if (value < 1) throw ConfigError(fmt::format("{}: {} must be at least 1, not {}", schedule, what, value));
  };
  positive("--stages", shape.stages);
  positive("--micro-batches", shape.micro_batches);
  positive("--pipelines", shape.pipelines);
  if (shape.stages > kMostOps / ops_each / shape.micro_batches) {
    throw ConfigError(fmt::format("{}: {} stages times {} micro-batches are more than {} ops; use fewer of either",
                                  schedule, shape.stages, shape.micro_batches, kMostOps));
  }
}

Placement linear_placement(std::int64_t stages) {
  Placement placement;
  auto& row = placement.worker_of.emplace_back();
  for (std::int64_t s = 0; s < stages; ++s) row.emplace_back(s);
  return placement;
}

}  // namespace chimera
