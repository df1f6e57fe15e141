#pragma once

#include <optional>
#include <string>

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// ZB-H1: 1F1B with split backward. Stage s starts with D-s + k-1 forwards of slices, at most N k, and delays its first
/// s weight gradients, which fill the bubbles of the cool-down. Any D, N and k, else ConfigError.
///
/// For N >= D each worker holds 1 + (D-1)/k activations. If W <= F, the largest inner bubble (between a worker's first
/// and last op) is (D-1)(F+I-W)/k. If also W <= I, the makespan is N (F+I+W) + (D-1)(F+I-W)/k. Source: Qi et al.,
/// ICLR'24 (Zero Bubble), section 2; slices as in Seq1F1B (1f1b), ours.
[[nodiscard]] Schedule zb_h1(const PipelineShape& shape);

[[nodiscard]] Generator zb_h1_entry();

/// ZB-H2: ZB-H1 with about twice the forwards ahead. Stage s starts with min(2(D-s)-1, N) forwards and delays its first
/// 2s weight gradients. Any D and N, else ConfigError.
///
/// For N >= 2D-1 each worker holds 2D-1 activations. If W <= F, the largest inner bubble is (D-1) max(0, F+I-2W).
/// Workers start and end staggered: the makespan is still at least N (F+I+W) + (D-1) F, unless a worker may start the
/// next step before all end. Source: as ZB-H1.
[[nodiscard]] Schedule zb_h2(const PipelineShape& shape);

[[nodiscard]] Generator zb_h2_entry();

/// Returns the schedule of both. Stage s runs min(fill (D-s) - fill + k, N k) forwards. Then it runs, for each slice,
/// its I, a W from the (fill s)-th I on, and a forward if any are left; then the remaining W. `fill` is 1 or 2: the
/// slices in flight, in multiples of D, beside the k-1 that complete a micro-batch. Throws ConfigError, naming `name`,
/// if zero_bubble_refusal() has a reason.
[[nodiscard]] Schedule zero_bubble(const char* name, const PipelineShape& shape, std::int64_t fill);

/// Accepts any D and N.
[[nodiscard]] std::optional<std::string> zero_bubble_refusal(const PipelineShape& shape);

}  // namespace chimera
