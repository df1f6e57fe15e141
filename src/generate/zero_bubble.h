#pragma once

#include <optional>
#include <string>

#include "generate/generator.h"
#include "schedule/schedule.h"

// What ZB-H1 and ZB-H2 share: 1F1B with the backward split, and weight gradients held back to fill bubbles.

namespace chimera {

/// ZB-H1: 1F1B with the backward split into I and W. Stage s starts with min(D-s, N) forwards and holds its first s
/// weight gradients back, which then fill the bubbles of the cool-down. Any D and N.
///
/// For N >= D every worker holds D activations, and where W <= F the largest inner bubble (a worker's waiting between
/// its own first and last op) is (D-1)(F+I-W). Where also W <= I, the makespan is N (F+I+W) + (D-1)(F+I-W). Throws
/// ConfigError if D or N is not positive. Source: Qi et al., ICLR'24 (Zero Bubble), section 2.
[[nodiscard]] Schedule zb_h1(const PipelineShape& shape);

[[nodiscard]] Generator zb_h1_entry();

/// ZB-H2: as ZB-H1 with twice the forwards ahead. Stage s starts with min(2(D-s)-1, N) forwards and holds its first 2s
/// weight gradients back. Any D and N.
///
/// For N >= 2D-1 every worker holds 2D-1 activations, and where W <= F the largest inner bubble (a worker's waiting
/// between its own first and last op) is (D-1) max(0, F+I-2W): none at F = I = W. The workers start and end staggered,
/// though: the makespan is still N (F+I+W) + (D-1) F or more, unless a worker may start the next step before all end.
/// Throws ConfigError if D or N is not positive. Source: Qi et al., ICLR'24 (Zero Bubble), section 2.
[[nodiscard]] Schedule zb_h2(const PipelineShape& shape);

[[nodiscard]] Generator zb_h2_entry();

/// The order on stage s: min(fill (D-s) - fill + 1, N) forwards; then, for each micro-batch in turn, its I, from the
/// (fill s)-th I on the next W, and a forward while there are any; then the remaining W. `fill` is 1 or 2: how many
/// pipelines' worth of micro-batches are at work. Throws ConfigError, naming `name`, if D or N is not positive.
[[nodiscard]] Schedule zero_bubble(const char* name, const PipelineShape& shape, std::int64_t fill);

/// Why ZB-H1 and ZB-H2 do not take the shape: they take any D and N.
[[nodiscard]] std::optional<std::string> zero_bubble_refusal(const PipelineShape& shape);

}  // namespace chimera
