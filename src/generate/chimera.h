#pragma once

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// Chimera: f down and f up pipelines through the same D workers (chimera_placement). In slots of equal length,
/// micro-batch m of a pipeline runs F at stage s in slot s + 2m and B in slot 2D-1-s + 2m. No two ops of a worker share
/// a slot.
///
/// N > D micro-batches run in units, by `scale`:
/// - Direct: units of D, each 2D slots after the one before, so that its first forwards fill the bubbles among the
///   previous unit's last backwards.
/// - Doubling: units of two blocks of D. A slot holds two forwards, micro-batches 2p and 2p+1 of the pipeline in slot
///   s + 2p. The second block's backwards are D slots after the first's, and the next unit starts after 3D slots. A
///   last unit of at most D micro-batches is one of Direct.
/// - Halving: Doubling with 2N micro-batches of half the size.
///
/// With v = `chunks` above 1, S = vD replaces D in the slots, which are a v-th as long; units stay D micro-batches.
///
/// With k = `slices` above 1 (Direct only), older_then_deeper() and with_fewest_credits() order the ops for B = 2F.
///
/// D even, f divides D/2, any N, v and k, else ConfigError. Micro-batches are numbered block by block and dealt to the
/// pipelines by share_of().
///
/// Makespan for F <= B and N = K D: D F + (D + D/f - 2) B at K = 1. Each further unit of Direct adds
/// (D - D/f + 2) F + (D + D/f - 2) B. Doubling with even K: (N + D/2f - 1)(F + B) if B <= 2F; for 2F <= B <= 3F each
/// unit but the first adds (D/f - 2)(B - 2F). v chunks divide the bubble of Direct, and of Doubling for B <= 2F, by v.
///
/// Source: Li and Hoefler, SC'21, figures 3 (basic unit), 7 (N > D) and 8 (2f pipelines). Doubling has the order of its
/// artifact, which sends each forward separately; with f > 1 or v > 1 it is ours. v = 2: Wu et al., 2024 (BitPipe).
[[nodiscard]] Schedule chimera(const PipelineShape& shape);

[[nodiscard]] Generator chimera_entry();

}  // namespace chimera
