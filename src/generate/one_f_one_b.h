#pragma once

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// 1F1B with a flush (DAPPLE's order): D - 1 - s + k - 1 warm-up forwards of slices on stage s, at most N k, then one
/// forward and one backward in turn, then the remaining backwards. Any D, N and k, else ConfigError. Makespan (N + (D -
/// 1)/k)(F + B); stage s holds min((D - 1 - s)/k + 1, N) activations. Sources: Fan et al., PPoPP'21 (DAPPLE); with
/// slices Sun et al., arXiv 2406.03488 (Seq1F1B).
[[nodiscard]] Schedule one_f_one_b(const PipelineShape& shape);

[[nodiscard]] Generator one_f_one_b_entry();

}  // namespace chimera
