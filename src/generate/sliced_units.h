#pragma once
// Chimera's placement with micro-batches cut into k slices along their sequences (docs/slices.md): the order of
// chimera-zb, and the rank of chimera and chimera-rotated. A slice's forward needs the slices before it, its backward
// the slices after it, so a pipeline must run k-1 more forwards before its first backward.

#include <cstdint>

#include "generate/generator.h"
#include "generate/list_schedule.h"
#include "schedule/schedule.h"

namespace chimera {

/// Returns the activations that a worker holds at most with sliced_units(), in slices of a stage: v (D + 2f (k - 1)).
[[nodiscard]] std::int64_t sliced_credits(const PipelineShape& shape);

/// Returns whether sliced_units() reaches the lower bound: all pipelines have equally many micro-batches, at least D in
/// total. With several pipelines per direction or several chunks, these also are whole units of q = ceil(D/2fk).
[[nodiscard]] bool has_sliced_units(const PipelineShape& shape);

/// Order of chimera-zb with k = `slices` above 1 on chimera_placement. With d = D/2f, a pipeline has n = d + k - 1
/// slices ahead of its input gradients when a unit of at most q micro-batches starts them. Then come the unit's input
/// gradients, then forwards until n slices are ahead again; weight gradients fill free slots, oldest first. At k = 1
/// and D | N these are chimera-zb's slots. docs/slices.md proves makespan N(F+I+W) + (d - 1) F/vk at F = I = W, and
/// sliced_credits(). Requires has_sliced_units() and a legal shape.
[[nodiscard]] Schedule sliced_units(const PipelineShape& shape);

/// Rank for whole backwards with slices: forwards first, of the older micro-batch, then of the lower stage; backwards
/// from the deepest stage.
[[nodiscard]] ListRank older_then_deeper(const PipelineShape& shape);

}  // namespace chimera
