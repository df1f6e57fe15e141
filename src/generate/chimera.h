#pragma once

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// Chimera: f down and f up pipelines through the same D workers, each starting a micro-batch every second slot.
/// Down pipeline i holds stage s on worker (i D/f + s) mod D, up pipeline i on worker (i D/f + D-1-s) mod D. In slots
/// of equal length, micro-batch m of a pipeline runs F at stage s in slot s + 2m and B in slot 2D-1-s + 2m. No two ops
/// of a worker share a slot.
///
/// More than D micro-batches run in units, by `scale`:
/// - Direct: units of D, each 2D slots after the one before, so that its first forwards fill the bubbles among the last
///   backwards.
/// - Doubling: units of 2D, two blocks of D. A slot of forwards holds two, micro-batches 2p and 2p+1 of the pipeline in
///   slot s + 2p; the second block's backwards follow D slots after the first's; the next unit starts after 3D slots.
///   Where D or fewer micro-batches are left (also where N <= D), the last unit is one of Direct.
/// - Halving: the order of Doubling for 2N micro-batches of half the size (the schedule's micro_batch_scale is 0.5), so
///   that a slot's two forwards are one full micro-batch.
///
/// With v = `chunks` above 1 each pipeline has S = vD stages, laid down and up its D workers in waves (BitPipe for v =
/// 2): the same slots, each a v-th as long, with S for D; units stay D micro-batches.
///
/// D even; any N and v (the last unit may be smaller; its micro-batches are dealt to the pipelines as evenly as can be,
/// down before up); 2f even and f a divisor of D/2. Micro-batches are numbered block by block: down 0 .. down f-1, then
/// up 0
/// .. up f-1. Replicas likewise.
///
/// Makespan for F <= B and N = K D: D F + (D + D/f - 2) B at K = 1, then (D - D/f + 2) F + (D + D/f - 2) B for each
/// further unit of Direct. Doubling with even K: (N + D/2f - 1)(F + B) if B <= 2F; each unit but the first takes
/// (D/f - 2)(B - 2F) more if 2F <= B <= 3F. With f = 1 worker w holds D/2 + 1 + min(w, D-1-w) activations, whatever N;
/// D more with Doubling.
/// v chunks divide the bubble of Direct, and of Doubling for B <= 2F, by v; with f = 1 and Direct a worker then holds
/// D - D/2v + (1 + min(w, D-1-w))/v activations of its whole share.
///
/// Throws ConfigError if D is odd, D, N or v is not positive, or `pipelines` is odd or does not fit D. Source: Li and
/// Hoefler, SC'21, figures 3 (basic unit), 7 (N > D) and 8 (2f pipelines); of doubling its artifact's order, which
/// sends each forward by itself; doubling with f > 1 or v > 1 is ours. v = 2: Wu et al., 2024 (BitPipe).
[[nodiscard]] Schedule chimera(const PipelineShape& shape);

[[nodiscard]] Generator chimera_entry();

}  // namespace chimera
