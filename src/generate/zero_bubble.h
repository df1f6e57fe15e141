#pragma once
// The zero-bubble schedules with one stage per worker. A backward is split into its input gradient (I), which the
// stage before needs at once, and its weight gradient (W), which nothing waits for and which therefore fills bubbles.

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// ZB-H1: the activations of 1F1B, about a third of its bubble.
[[nodiscard]] Schedule zb_h1(const PipelineShape& shape);
[[nodiscard]] Generator zb_h1_entry();

/// ZB-H2: twice the activations of 1F1B, no bubble between a worker's first and last op.
[[nodiscard]] Schedule zb_h2(const PipelineShape& shape);
[[nodiscard]] Generator zb_h2_entry();

}  // namespace chimera
