#pragma once
// Orders of ops for Chimera's placement if micro-batches are divided into k slices along their token sequences, with
// ops of their own (docs/slices.md). A slice's forward needs the forwards of the slices before it, and its backward the
// backwards of the slices after it, so a pipeline must run k-1 more forwards before its first backward. sliced_units()
// is the order of the schedule chimera-zb. chimera and chimera-rotated use list scheduling (list_schedule.h) with
// older_then_deeper(). In formulas, D workers run 2f pipelines (f in each direction), each with v stages on every
// worker and N/2f of the N micro-batches of a step; d = D/2f and q = ceil(d/k).

#include "generate/generator.h"
#include "generate/list_schedule.h"
#include "schedule/schedule.h"

namespace chimera {

/// Returns the maximum activations of a worker with sliced_units(), in slices of a stage: v (D + 2f (k - 1)).
[[nodiscard]] std::int64_t sliced_credits(const PipelineShape& shape);

/// Returns whether sliced_units() supports the shape and reaches the lower bound of the makespan. Required: N >= D, and
/// 2f divides N. If f or v is above 1, q must also divide N/2f.
[[nodiscard]] bool has_sliced_units(const PipelineShape& shape);

/// Returns the schedule chimera-zb with several slices, on chimera_placement(). A pipeline first runs the forwards of n
/// = d + k - 1 slices. Its micro-batches form units of at most q. For each unit, it runs the input gradients of the
/// unit's slices, and then forwards until it is n slices ahead of its input gradients again. Weight gradients fill the
/// free time slots, oldest first. If forwards, input gradients and weight gradients take equal times F = I = W (of a
/// micro-batch in v stages), the makespan is N (F + I + W) + (d - 1) F / vk; docs/slices.md proves this and
/// sliced_credits(). Requires has_sliced_units() and a legal shape.
[[nodiscard]] Schedule sliced_units(const PipelineShape& shape);

/// Returns the priorities of list_schedule() for whole backwards with slices. Forwards come before backwards. Among
/// forwards, the older micro-batch comes first, then the lower stage; among backwards, the deeper stage.
[[nodiscard]] ListRank older_then_deeper(const PipelineShape& shape);

}  // namespace chimera
