#pragma once
// Who sums what: questions about StageGroups that every transport asks.

#include <cstddef>

#include "transport/transport.h"

namespace chimera {

/// The place of `worker` among the workers that hold `stage`, counted from 0.
/// Throws TransportError where it holds no copy of that stage.
[[nodiscard]] std::size_t place_in_group(const StageGroups& groups, StageId stage, WorkerId worker);

}  // namespace chimera
