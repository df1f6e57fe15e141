#pragma once

// ZeRO's first level (Rajbhandari et al., SC'20, section 5.1) over the copies of a stage, split between whole
// parameters. Gradients are summed by a reduce-scatter to the owners (ProgramShape::scatters).

#include <map>
#include <memory>

#include "engine/optimizer.h"
#include "transport/transport.h"

namespace chimera {

/// Creates an optimizer with the same bits as make_optimizer(). Each copy of a stage keeps state of its own parameters
/// (owners_of), updates these and sends them to the other copies. It reads only their gradients. All workers start and
/// await an all-gather per stage in stage order, so that even serialized collectives cannot deadlock.
///
/// Parameters travel in ParameterGroup::gradients(), unused after a step, without further memory. `trained` is on this
/// rank; `groups` are the ranks of each group. Borrows `trained` and `transport`. step() throws TransportError.
[[nodiscard]] std::unique_ptr<Optimizer> make_sharded_optimizer(
    const OptimizerOptions& options, const std::map<ParameterGroupId, ParameterGroup*>& trained,
    const RankGroups& groups, RankId rank, Transport& transport);

}  // namespace chimera
