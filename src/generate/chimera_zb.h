#pragma once

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// Chimera's placement with split backward. Units of D micro-batches follow each other every 3D slots: in slots of
/// equal length, counted from its unit's first, micro-batch m of a pipeline runs F at stage s in slot s + 2m and I in
/// slot 2D-1-s + 2m, as Chimera's F and B do. The weight gradients fill the free slots, oldest first; those of a unit
/// that find none fill the free slots at the beginning of the next one. For N > D that is no multiple of D, which would
/// leave most of the last unit's slots free, the best (earliest end, then fewest activations) of three greedy orders at
/// F = I = W = 1 instead.
///
/// D even, any N, f divides D/2. For D | N and F = I = W the makespan is N(F+I+W) + (D/2f - 1) F, which no schedule on
/// this placement beats whatever N and the costs: docs/chimera_zb.md proves both. Every worker then holds D
/// activations; at most N for N < D, and at most D+1 otherwise. Micro-batches are numbered, and dealt to the pipelines,
/// as by chimera(). Throws ConfigError if D is odd, D or N is not positive, the ops are too many, or `pipelines` is odd
/// or does not fit D. Source: ours; Li and Hoefler, SC'21 (placement and slots), and Qi et al., ICLR'24 (the split
/// backward of zero-bubble schedules).
[[nodiscard]] Schedule chimera_zb(const PipelineShape& shape);

[[nodiscard]] Generator chimera_zb_entry();

}  // namespace chimera
