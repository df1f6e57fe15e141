#pragma once
// Orders of ops for Chimera's placement if micro-batches are divided into k slices along their sequences
// (docs/slices.md). sliced_units() is the order of chimera-zb. chimera and chimera-rotated use list scheduling
// (list_schedule.h) with older_then_deeper(). A slice's forward needs the forwards of the slices before it, and its
// backward the backwards of the slices after it, so a pipeline must run k-1 more forwards before its first backward.

#include <cstdint>

#include "generate/generator.h"
#include "generate/list_schedule.h"
#include "schedule/schedule.h"

namespace chimera {

/// Returns the maximum activations of a worker with sliced_units(), in slices of a stage: v (D + 2f (k - 1)).
[[nodiscard]] std::int64_t sliced_credits(const PipelineShape& shape);

/// Returns whether sliced_units() supports the shape and reaches the lower bound of the makespan. Required: N >= D, and
/// 2f divides N. With several pipelines per direction or several chunks, q = ceil(D/2fk) must also divide N/2f, the
/// micro-batches of a pipeline.
[[nodiscard]] bool has_sliced_units(const PipelineShape& shape);

/// Returns the schedule chimera-zb with k = `slices` above 1, on chimera_placement(). The micro-batches of a pipeline
/// form units of at most q. With d = D/2f, a pipeline first runs the forwards of n = d + k - 1 slices. Then, for each
/// unit, it runs the input gradients of the unit's slices, and then forwards until it is n slices ahead of its input
/// gradients again. Weight gradients fill free slots, oldest first. (If k = 1 and D divides N, these are the slots of
/// chimera-zb without slices.) docs/slices.md proves makespan N(F+I+W) + (d - 1) F/vk at F = I = W, and
/// sliced_credits(). Requires has_sliced_units() and a legal shape.
[[nodiscard]] Schedule sliced_units(const PipelineShape& shape);

/// Returns the priorities of list_schedule() for whole backwards with slices. Forwards come before backwards. Among
/// forwards, the older micro-batch comes first, then the lower stage; among backwards, the deeper stage.
[[nodiscard]] ListRank older_then_deeper(const PipelineShape& shape);

}  // namespace chimera
