#pragma once

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// DualPipe: two replicas of the model through the same D workers in opposite directions, N/2 micro-batches each; in
/// the steady state each forward of one direction is paired with a backward of the other (written F, then B: only a run
/// on real hardware may overlap them). Replica 0 holds stage s on worker s and runs micro-batches 0 .. N/2-1, replica 1
/// holds it on worker D-1-s and runs the rest. D even; N even and at least 2D.
///
/// Where a pair takes F + B, each worker waits (D/2 - 1)(F + I - W) within the makespan, if W <= I <= F <= I + W
/// (longer where I is far above F); every worker holds D + 1 activations. Throws ConfigError if D or N is odd or not
/// positive, N < 2D, or the ops are too many. Source: DeepSeek-AI, DeepSeek-V3 technical report, 2024, section 3.2.1
/// and figure 5.
[[nodiscard]] Schedule dualpipe(const PipelineShape& shape);

[[nodiscard]] Generator dualpipe_entry();

}  // namespace chimera
