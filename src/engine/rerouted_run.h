#pragma once

// The run of the remaining ranks after a loss (--recover reroute). Other ranks hold replicas of a lost rank's stages
// and run its ops, in one schedule for all data-parallel groups together (generate/detours.h). The run therefore has a
// single group: each remaining rank is a worker, and ranks are numbered without gaps.
//
//   launched   rank 0   rank 1   rank 2 (lost)   rank 3
//   remaining  rank 0   rank 1                   rank 2      worker number = rank

#include <cstdint>
#include <vector>

#include "engine/run_shape.h"

namespace chimera {

/// Returns the ranks of the launched run that are not lost, ascending. The index of a rank is its number in
/// rerouted_run().
[[nodiscard]] std::vector<RankId> remaining_ranks(const RunShape& launched, const std::vector<RankId>& lost);

/// Returns the run of the remaining ranks. Micro-batches keep their samples and their positions in data order
/// (run_shape.h). With --reduction canonical (canonical.h), the workers of a path through the stages run whole blocks
/// of `block_size` micro-batches, which must divide the number of micro-batches of a step; otherwise it is 1. Throws
/// ConfigError if make_detours() does, for example because no remaining rank holds some stage.
[[nodiscard]] RunShape rerouted_run(const RunShape& launched, const std::vector<RankId>& lost, std::int64_t block_size);

}  // namespace chimera
