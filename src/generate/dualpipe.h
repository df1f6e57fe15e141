#pragma once

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

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
