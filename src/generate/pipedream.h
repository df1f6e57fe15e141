#pragma once

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// PipeDream-2BW (double-buffered weights): 1F1B without a flush, with one update per N micro-batches. Batch t = m div
/// N uses version max(0, t-1) on every stage. N >= D, else ConfigError, so that backwards of batch t-2 have ended and
/// two versions suffice.
///
/// Returns one step, with weight version 0 and the makespan of 1F1B; stage s holds D-s activations. unroll()
/// (passes/unroll.h) makes many steps, without bubbles after the start. Source: Narayanan et al., ICML'21.
[[nodiscard]] Schedule pipedream_two_bw(const PipelineShape& shape);

[[nodiscard]] Generator pipedream_two_bw_entry();

/// PipeDream: 1F1B without a flush. A stage updates its weights after every backward and keeps the version that a
/// micro-batch's forward used for its backward (weight stashing). On stage s micro-batch m uses version max(0, m -
/// (D-1-s)), so stage s keeps up to D-s versions. Any D and N, else ConfigError.
///
/// Returns one step with the makespan of 1F1B; stage s holds min(D-s, N) activations. unroll() (passes/unroll.h) makes
/// many steps, without bubbles after the start and with D micro-batches in flight for any N. Source: Narayanan et al.,
/// SOSP'19.
[[nodiscard]] Schedule pipedream(const PipelineShape& shape);

[[nodiscard]] Generator pipedream_entry();

}  // namespace chimera
