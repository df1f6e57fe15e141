#include "transport/groups.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace chimera {

std::size_t place_in_group(const StageGroups& groups, StageId stage, WorkerId worker) {
  if (stage.index() < groups.size()) {
    const auto& group = groups[stage.index()];
    const auto found = std::find(group.begin(), group.end(), worker);
    if (found != group.end()) return static_cast<std::size_t>(found - group.begin());
  }
  throw TransportError(
      fmt::format("worker {}: all-reduce of stage {}: it holds no copy of that stage; "
                  "only the workers of the stage's group take part",
                  worker.value(), stage.value()));
}

}  // namespace chimera
