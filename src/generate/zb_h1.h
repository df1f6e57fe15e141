#pragma once

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// ZB-H1: 1F1B with the backward split into I and W. Stage s starts with min(D-s, N) forwards and holds its first s
/// weight gradients back, which then fill the bubbles of the cool-down. Any D and N.
///
/// For N >= D every worker holds D activations, and where W <= F the largest inner bubble (a worker's waiting between
/// its own first and last op) is (D-1)(F+I-W). Where also W <= I, the makespan is N (F+I+W) + (D-1)(F+I-W). Throws
/// ConfigError if D or N is not positive. Source: Qi et al., ICLR'24 (Zero Bubble), section 2.
[[nodiscard]] Schedule zb_h1(const PipelineShape& shape);

[[nodiscard]] Generator zb_h1_entry();

}  // namespace chimera
