#pragma once

#include <cstdint>
#include <vector>

#include "generate/generator.h"
#include "generate/two_chunks.h"
#include "schedule/op.h"
#include "schedule/schedule.h"

// The order of ops that DualPipe and DualPipeV have in common.

namespace chimera {

/// A worker's ops where two streams of n micro-batches, n >= 2H, cross 2H stages from opposite ends: `near` is its
/// stage at distance h < H from its stream's entrance, `far` the other stream's, at distance 2H-1-h. In the middle each
/// forward and the other stream's backward are a pair; only backwards at the ends are split,
/// where their weight gradients fill bubbles. Source: the step list of DeepSeek-AI's DualPipe.
[[nodiscard]] std::vector<Op> dualpipe_order(const Chunk& near, const Chunk& far, std::int64_t h, std::int64_t H);

/// DualPipeV: the upper half of DualPipe on 2D workers, folded so that one replica suffices: the model in 2D stages
/// down the D workers and up again, worker w holding stages w and 2D-1-w. What DualPipe's other direction was is the
/// way up. Any D; N at least 2D.
///
/// Where pairs run in order, each worker waits (D - 1)(F + I - W) within the makespan, times being those of one stage,
/// if W <= I <= F <= I + W; every worker holds the activations of 2D + 1 stages, D + 1/2 stage units. Throws
/// ConfigError if D or N is not positive, N < 2D, or the ops are too many. Source: DeepSeek-AI, DualPipe (its
/// repository), 2025; the fold is Sea AI Lab's "cut in half".
[[nodiscard]] Schedule dualpipev(const PipelineShape& shape);

[[nodiscard]] Generator dualpipev_entry();

/// DualPipe: two replicas of the model through the same D workers in opposite directions, N/2 micro-batches each; in
/// the steady state each forward of one direction and a backward of the other are a pair, but for the first ones of the
/// two middle workers. Replica 0 holds stage s on worker s and runs micro-batches 0 .. N/2-1, replica 1 holds it on
/// worker D-1-s and runs the rest. D even; N even and at least 2D.
///
/// Where pairs run in order, each worker waits (D/2 - 1)(F + I - W) within the makespan, if W <= I <= F <= I + W
/// (longer where I is far above F); every worker holds D + 1 activations. Where the two of a pair
/// complete jointly in time F&B, and F = I >= W, the first and the last worker wait (D/2 - 1)(F&B + B - 3W), as
/// published, less (D/2 - 2)(F + B - F&B), which their neighbours' pairs save. Throws ConfigError if D or N is odd or
/// not positive, N < 2D, or the ops are too many. Source: DeepSeek-AI, DeepSeek-V3 technical report, 2024,
/// section 3.2.1 and figure 5.
[[nodiscard]] Schedule dualpipe(const PipelineShape& shape);

[[nodiscard]] Generator dualpipe_entry();

}  // namespace chimera
