#pragma once

// ZeRO stage 1 (Rajbhandari et al., SC'20, section 5.1), for --shard-optimizer: the ranks with a copy of a pipeline
// stage share its optimizer state. Each parameter belongs to one of these ranks as a whole, its owner (owners_of() in
// model/parameter_group.h). A reduce-scatter sums the gradients and sends each sum to the owner
// (ProgramShape::scatters). The owner updates the parameter, and an all-gather sends the new values to all copies.
//
// With --recover twin or reroute, two ranks own each parameter. All ranks get all sums of gradients, and both owners
// make the same update. So the loss of one of them loses no state.

#include <map>

#include "engine/optimizer.h"
#include "transport/transport.h"

namespace chimera {

/// Creates the sharded optimizer of a rank. Updated parameters equal those of make_optimizer()
/// (engine/optimizer.h) bit by bit. The optimizer keeps state only for the parameters that the rank owns, and
/// reads only their gradients. step() starts one all-gather per stage, in stage order on all ranks, and waits for them
/// in the same order. Therefore it cannot deadlock, even if the transport runs one collective at a time. step() throws
/// TransportError if communication fails; the rank's own parameters are updated even then.
///
/// The buffer of an all-gather is ParameterGroup::gradients(), because nothing reads the gradients after the update.
/// `trained` has the parameter groups (stages) on this rank, and `groups` the ranks that hold each group. A shard is
/// the parameters of a group that one owner has, or two with --recover. `shards` is [group][shard]: the owners
/// (shard_holders()); all update the shard, and the first sends its new values. If `shards` is empty, each rank of a
/// group owns one shard alone. Borrows `trained` and `transport`. `tensor` is the group of ranks that share the layers;
/// null without tensor parallelism.
[[nodiscard]] std::unique_ptr<Optimizer> make_sharded_optimizer(
    const OptimizerOptions& options, const std::map<ParameterGroupId, ParameterGroup*>& trained,
    const RankGroups& groups, RankId rank, Transport& transport, TensorGroup* tensor = nullptr,
    const std::vector<RankGroups>& shards = {});

/// Returns [shard]: the ranks of `group` that update it. There is a shard for each rank; with `twice`, a second rank of
/// the group updates it, too: the other rank of a pair or, in a group of odd size, the next rank.
[[nodiscard]] RankGroups shard_holders(const std::vector<RankId>& group, bool twice);

}  // namespace chimera
