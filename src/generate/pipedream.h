#pragma once

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// PipeDream: the order of 1F1B without a flush. A stage updates its weights after every single backward, and keeps the
/// version that a micro-batch's forward used for its backward (weight stashing): on stage s micro-batch m uses version
/// max(0, m - (D-1-s)), up to D versions on stage 0 and one on the last. Any D and N.
///
/// The value is one step, the N micro-batches between a start and a stop, in which stage s holds min(D-s, N)
/// activations; makespan as 1F1B's. unroll() (passes/unroll.h) makes the stream of many steps, which has no bubble
/// after its start: D micro-batches are at work whatever N. Throws ConfigError if D or N is not positive. Source:
/// Narayanan et al., SOSP'19.
[[nodiscard]] Schedule pipedream(const PipelineShape& shape);

[[nodiscard]] Generator pipedream_entry();

}  // namespace chimera
