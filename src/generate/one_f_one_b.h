#pragma once

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// 1F1B with a flush: after its warm-up forwards, a worker alternates one forward and one backward.
[[nodiscard]] Schedule one_f_one_b(const PipelineShape& shape);
[[nodiscard]] Generator one_f_one_b_entry();

/// Equation 1 of 1F1B, and of GPipe, which has the same critical path.
[[nodiscard]] PaperModel one_f_one_b_model();

}  // namespace chimera
