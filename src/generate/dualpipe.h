#pragma once

#include <cstdint>
#include <vector>

#include "generate/generator.h"
#include "generate/two_chunks.h"
#include "schedule/op.h"
#include "schedule/schedule.h"

namespace chimera {

/// Returns the ops of a worker on which two streams of n micro-batches, n >= 2H, cross 2H stages from opposite ends.
/// `near` is its stage at distance h < H from its stream's entrance, `far` the other stream's, at distance 2H-1-h. In
/// the middle, each forward forms a pair with the other stream's backward. Only backwards at the ends are split.
/// Source: the step list of DeepSeek-AI's DualPipe.
[[nodiscard]] std::vector<Op> dualpipe_order(const Chunk& near, const Chunk& far, std::int64_t h, std::int64_t H);

/// DualPipeV: the upper half of DualPipe on 2D workers, folded to a replica of 2D stages, with stages w and 2D-1-w on
/// worker w. Any D, N >= 2D, else ConfigError.
///
/// With pairs in order, each worker waits (D - 1)(F + I - W) within the makespan (times per stage) if W <= I <= F <= I
/// + W. Each worker holds the activations of 2D + 1 stages, D + 1/2 stage units. Source: DeepSeek-AI, DualPipe (its
/// repository), 2025; the fold is Sea AI Lab's "cut in half".
[[nodiscard]] Schedule dualpipev(const PipelineShape& shape);

[[nodiscard]] Generator dualpipev_entry();

/// DualPipe: two replicas in opposite directions, N/2 micro-batches each. In the steady state, forwards of a direction
/// form pairs with backwards of the other, except the first on the two middle workers. Replica 0 has stage s on worker
/// s and runs micro-batches 0 .. N/2-1; replica 1 has it on worker D-1-s and runs the rest. D even, N even and at least
/// 2D, else ConfigError.
///
/// With pairs in order, each worker waits (D/2 - 1)(F + I - W) within the makespan if W <= I <= F <= I + W (longer if I
/// is far above F). Each worker holds D + 1 activations. If a pair takes F&B together and F = I >= W, the first and
/// last worker wait (D/2 - 1)(F&B + B - 3W), as published, less (D/2 - 2)(F + B - F&B) saved by their neighbors' pairs.
/// Source: DeepSeek-AI, DeepSeek-V3 technical report, 2024, section 3.2.1 and figure 5.
[[nodiscard]] Schedule dualpipe(const PipelineShape& shape);

[[nodiscard]] Generator dualpipe_entry();

}  // namespace chimera
