#pragma once

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// 1F1B with a flush (DAPPLE's order): min(D - 1 - s, N) warm-up forwards on stage s, then one forward and one backward
/// in turn, then the remaining backwards. Any D and N, else ConfigError. Makespan (N + D - 1)(F + B); stage s holds
/// min(D - s, N) activations. Source: Fan et al., PPoPP'21 (DAPPLE).
[[nodiscard]] Schedule one_f_one_b(const PipelineShape& shape);

[[nodiscard]] Generator one_f_one_b_entry();

}  // namespace chimera
