#pragma once
// Profiles of several nodes as one.

#include <vector>

#include "plan/machine.h"

namespace chimera {

/// One profile of nodes that were measured apart, for plans over all of them. Layers are united; a layer and
/// micro-batch size that several measured takes the mean of their times and the largest spread. Links within nodes, the
/// update and the overheads are means; memory is the least. Links between nodes are those of the last profile in which
/// they differ from the links within, as one node alone cannot measure them; where there is none, those within.
/// Throws ConfigError for fewer than two, and where nodes differ in cores, threads or workers.
[[nodiscard]] MachineProfile merge_machines(const std::vector<MachineProfile>& machines);

}  // namespace chimera
