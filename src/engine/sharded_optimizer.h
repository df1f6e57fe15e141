#pragma once

// ZeRO stage 1 (Rajbhandari et al., SC'20, section 5.1), for --shard-optimizer: the ranks with a copy of a pipeline
// stage share its optimizer state. Each parameter belongs to one of these ranks as a whole, its owner (owners_of() in
// model/parameter_group.h). A reduce-scatter sums the gradients and sends each sum to the owner
// (ProgramShape::scatters). The owner updates the parameter, and an all-gather sends the new values to all copies.

#include <map>
#include <memory>

#include "engine/optimizer.h"
#include "transport/transport.h"

namespace chimera {

/// Creates the sharded optimizer of a rank. Updated parameters equal those of make_optimizer()
/// (engine/make_optimizer.h) bit by bit. The optimizer keeps state only for the parameters that the rank owns, and
/// reads only their gradients. step() starts one all-gather per stage, in stage order on all ranks, and waits for them
/// in the same order. Therefore it cannot deadlock, even if the transport runs one collective at a time. step() throws
/// TransportError if communication fails.
///
/// The buffer of an all-gather is ParameterGroup::gradients(), because nothing reads the gradients after the update.
/// `trained` has the parameter groups (stages) on this rank, and `groups` the ranks that hold each group. Borrows
/// `trained` and `transport`. `sum` is as in make_optimizer().
[[nodiscard]] std::unique_ptr<Optimizer> make_sharded_optimizer(
    const OptimizerOptions& options, const std::map<ParameterGroupId, ParameterGroup*>& trained,
    const RankGroups& groups, RankId rank, Transport& transport, const SumOverParts& sum = {});

}  // namespace chimera
