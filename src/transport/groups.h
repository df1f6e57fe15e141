#pragma once
// Who sums what: questions about RankGroups that every transport asks.

#include <cstddef>

#include "transport/transport.h"

namespace chimera {

/// The place of `rank` among the members of the group, counted from 0.
/// Throws TransportError where it is none of them.
[[nodiscard]] std::size_t place_in_group(const RankGroups& groups, ParameterGroupId group, RankId rank);

}  // namespace chimera
