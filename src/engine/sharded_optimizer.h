#pragma once
// Optimizer state that the copies of a stage share: ZeRO's first level (Rajbhandari et al., SC'20, section 5.1), cut at
// the borders of parameters.

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "engine/optimizer.h"
#include "transport/transport.h"

namespace chimera {

/// Which of `members` owns each parameter, given their sizes: the largest first, each to the member that owns least so
/// far (Graham 1969: at most 4/3 of the best balance), the first of several. Members may be left without any.
[[nodiscard]] std::vector<std::size_t> owners_of(const std::vector<std::int64_t>& sizes, std::size_t members);

/// Does what make_optimizer() does, but where several workers hold a stage, each keeps optimizer state only for the
/// parameters that it owns, updates these, and hands them to the others; all bits are those of an unsharded optimizer.
/// In each step it asks the transport for one all-gather a stage, started and waited for in the order of the stages on
/// every worker. So they cannot block each other, even where a collective starts only after the one before.
///
/// No further memory is needed: the parameters travel in ParameterGroup::gradients(), which hold no gradients after a
/// step.
///
/// `trained`: what the rank holds; `groups`: the ranks that hold each of them. trained and transport are borrowed.
/// step() throws TransportError.
[[nodiscard]] std::unique_ptr<Optimizer> make_sharded_optimizer(
    const OptimizerOptions& options, const std::map<ParameterGroupId, ParameterGroup*>& trained,
    const RankGroups& groups, RankId rank, Transport& transport);

}  // namespace chimera
