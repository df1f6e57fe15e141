#pragma once

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// Chimera's placement with v = `chunks` and split backward, in one of two orders.
///
/// Slots: units of D micro-batches in Chimera's slots, with I instead of B, one unit every 3S slots (S = vD). Weight
/// gradients fill the free slots, oldest first, also in the next unit. If N > D and D does not divide N, the order is
/// the best (earliest end, then fewest activations) of three greedy orders at F = I = W = 1.
///
/// Deepest: deepest_first.h with D/2f micro-batches of a pipeline in flight. Slower for equal times without latency,
/// faster for most others. Auto: Deepest for v > 1 and D | N, else Slots.
///
/// With k = `slices` above 1, Slots is sliced_units() if has_sliced_units(), else a greedy order with as few
/// activations as reach the lower bound, at most k slices more. Deepest is that order for messages as long as a slice's
/// F, with at most 2D or k slices more.
///
/// D even, f divides D/2, any N, v and k, else ConfigError. For D | N and F = I = W, Slots has makespan N(F+I+W) +
/// (D/2f - 1) F/v. No schedule on this placement is faster, for any N and costs (docs/chimera_zb.md). A worker then
/// holds D activations of its whole share, and at most D with Deepest. Otherwise it holds at most N for N < D, and D+1
/// for N > D. Micro-batches are numbered and dealt as by chimera().
///
/// Source: ours; Li and Hoefler, SC'21 (placement and slots), and Qi et al., ICLR'24 (split backward).
[[nodiscard]] Schedule chimera_zb(const PipelineShape& shape);

[[nodiscard]] Generator chimera_zb_entry();

}  // namespace chimera
