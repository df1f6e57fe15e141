#pragma once

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// Chimera's placement, of v = `chunks` stages of each pipeline on a worker, with split backward, in one of two orders.
///
/// Slots: with S = vD stages units of D micro-batches follow each other every 3S slots: in slots of equal length,
/// counted from its unit's first, micro-batch m of a pipeline runs F at stage s in slot s + 2m and I in slot
/// 2S-1-s + 2m, as Chimera's F and B do. The weight gradients fill the free slots, oldest first; those of a unit
/// that find none fill the free slots at the beginning of the next one. For N > D that is no multiple of D, which would
/// leave most of the last unit's slots free, the best (earliest end, then fewest activations) of three greedy orders at
/// F = I = W = 1 instead.
///
/// Deepest: deepest_first.h with D/2f micro-batches of a pipeline on their way. Slower at equal times without latency,
/// faster at most others. Auto: Deepest for v > 1 and D | N, else Slots.
///
/// D even, any N and v, f divides D/2. For D | N and F = I = W the makespan of Slots is N(F+I+W) + (D/2f - 1) F/v,
/// which no schedule on this placement beats whatever N and the costs: docs/chimera_zb.md proves both. Every worker
/// then holds D activations of its whole share, and never more with Deepest; at most N for N < D, and at most D+1
/// otherwise. Micro-batches are numbered, and dealt to the pipelines, as by chimera(). Throws ConfigError if D is odd,
/// D or N is not positive, the ops are too many, or `pipelines` is odd or does not fit D. Source: ours; Li and Hoefler,
/// SC'21 (placement and slots), and Qi et al., ICLR'24 (the split backward of zero-bubble schedules).
[[nodiscard]] Schedule chimera_zb(const PipelineShape& shape);

[[nodiscard]] Generator chimera_zb_entry();

}  // namespace chimera
