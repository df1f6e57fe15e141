#pragma once

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// GPipe: all forwards of a step, then all backwards.
[[nodiscard]] Schedule gpipe(const PipelineShape& shape);
[[nodiscard]] Generator gpipe_entry();

}  // namespace chimera
