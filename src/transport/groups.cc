#include "transport/groups.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace chimera {

std::size_t place_in_group(const RankGroups& groups, ParameterGroupId group, RankId rank) {
  if (group.index() < groups.size()) {
    const auto& members = groups[group.index()];
    const auto found = std::find(members.begin(), members.end(), rank);
    if (found != members.end()) return static_cast<std::size_t>(found - members.begin());
  }
  throw TransportError(
      fmt::format("rank {}: all-reduce of stage {}: it holds no copy of that stage; "
                  "only the ranks that do take part",
                  rank.value(), group.value()));
}

}  // namespace chimera
