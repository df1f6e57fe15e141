#pragma once

// The run of the remaining ranks after a loss (--recover reroute). The other holders of a lost rank's stages run its
// ops, in a schedule with detours (generate/detours.h) for all groups together. This run has one data-parallel group:
// each remaining rank is a worker, and ranks are numbered densely.
//
//   launched   rank 0   rank 1   rank 2 (lost)   rank 3
//   remaining  rank 0   rank 1                   rank 2      worker = rank, W = 1

#include <cstdint>
#include <vector>

#include "engine/run_shape.h"

namespace chimera {

/// Returns the ranks of the run that are not lost, ascending. Their indices are the ranks of rerouted_run().
[[nodiscard]] std::vector<RankId> remaining_ranks(const RunShape& launched, const std::vector<RankId>& lost);

/// Returns the run of the remaining ranks. Micro-batches keep their samples and their positions in data order. Each
/// block of `block_size` micro-batches, a divisor of the step's number, stays on one path, so that canonical sums keep
/// their blocks. Throws ConfigError if make_detours() does, for example because a stage has no holder left.
[[nodiscard]] RunShape rerouted_run(const RunShape& launched, const std::vector<RankId>& lost, std::int64_t block_size);

}  // namespace chimera
