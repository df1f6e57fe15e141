#pragma once

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// ZB-H2: as ZB-H1 with twice the forwards ahead. Stage s starts with min(2(D-s)-1, N) forwards and holds its first 2s
/// weight gradients back. Any D and N.
///
/// For N >= 2D-1 every worker holds 2D-1 activations, and where W <= F the largest inner bubble (a worker's waiting
/// between its own first and last op) is (D-1) max(0, F+I-2W): none at F = I = W. The workers start and end staggered,
/// though: the makespan is still N (F+I+W) + (D-1) F or more, unless a worker may start the next step before all end.
/// Throws ConfigError if D or N is not positive. Source: Qi et al., ICLR'24 (Zero Bubble), section 2.
[[nodiscard]] Schedule zb_h2(const PipelineShape& shape);

[[nodiscard]] Generator zb_h2_entry();

}  // namespace chimera
