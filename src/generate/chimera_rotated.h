#pragma once

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// Chimera with rotated instead of reversed pipelines: R = `pipelines` replicas in one direction, each shifted by D/R
/// workers (rotated_placement). A worker runs forwards first while it holds fewer than D + D/R micro-batches of all its
/// stages, then backwards. So one replica's forwards fill the next replica's warm-up.
///
/// For N = D and R | N the makespan is (D + D/R - 1)(F + B) for any F and B; Chimera with two replicas needs (D/2 -
/// 1)(B - F) more. For N > D and B >= F it is close to (N + D/R - 1)(F + B).
///
/// With k slices, older_then_deeper() and with_fewest_credits() look for makespan N(F+B) + (D/R - 1)(F+B)/k at B = 2F,
/// the lower bound. They found it in every shape of the tests, at k >= 4, holding at most R + (D + max(D, k) - R)/k.
///
/// R >= 2 divides D, any N, else ConfigError; micro-batch m is in replica m mod R. Source: ours, found by `chimera
/// search --placement any`, which proves that no placement of two replicas on four workers is faster.
[[nodiscard]] Schedule chimera_rotated(const PipelineShape& shape);

[[nodiscard]] Generator chimera_rotated_entry();

}  // namespace chimera
