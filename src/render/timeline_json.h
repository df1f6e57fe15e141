#pragma once
// A simulation as JSON, for scripts.

#include <string>

#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace chimera {

/// Returns a simulation as JSON with all digits; the grammar is in docs/schedule_format.md.
[[nodiscard]] std::string to_json(const Schedule& schedule, const Timeline& timeline, const Explanation& explanation);

}  // namespace chimera
