#pragma once

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// PipeDream-2BW (double-buffered weights): the order of 1F1B without a flush, one update for every N micro-batches.
/// Batch t = m div N of the stream uses version max(0, t-1) on every stage: when the first of it is forwarded, the
/// backwards of batch t-1 are still under way. N >= D, so that those of batch t-2 are not, and two versions are enough.
///
/// The value is one step, batch 0, whose ops all use version 0; unroll() (passes/unroll.h) makes the stream of many
/// steps, which has no bubble after its start. Makespan of the one step as 1F1B's; stage s holds D-s activations.
/// Throws ConfigError if D or N is not positive, or N < D. Source: Narayanan et al., ICML'21.
[[nodiscard]] Schedule pipedream_two_bw(const PipelineShape& shape);

[[nodiscard]] Generator pipedream_two_bw_entry();

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
