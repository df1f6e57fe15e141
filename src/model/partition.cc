#include "model/partition.h"

#include <fmt/format.h>

#include "core/error.h"

namespace chimera {

std::vector<StageLayers> even_partition(std::int64_t layers, std::int64_t stages) {
  if (stages < 1 || stages > layers) {
    throw ConfigError(
        fmt::format("cannot cut {} layers into {} stages; each stage needs at least one layer", layers, stages));
  }
  std::vector<StageLayers> partition;
  std::int64_t first = 0;
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    const std::int64_t end = first + layers / stages + (stage < layers % stages ? 1 : 0);
    partition.push_back({first, end, stage == 0, stage == stages - 1});
    first = end;
  }
  return partition;
}

}  // namespace chimera
