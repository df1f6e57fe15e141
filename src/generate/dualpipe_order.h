#pragma once
// The order of ops that DualPipe and DualPipeV have in common.

#include <cstdint>
#include <vector>

#include "generate/two_chunks.h"
#include "schedule/op.h"

namespace chimera {

/// A worker's ops where two streams of n micro-batches, n >= 2H, cross 2H stages from opposite ends: `near` is its
/// stage at distance h < H from its stream's entrance, `far` the other stream's, at distance 2H-1-h. In the middle each
/// forward and the other stream's backward are a pair; only backwards at the ends are split,
/// where their weight gradients fill bubbles. Source: the step list of DeepSeek-AI's DualPipe.
[[nodiscard]] std::vector<Op> dualpipe_order(const Chunk& near, const Chunk& far, std::int64_t h, std::int64_t H);

}  // namespace chimera
