#pragma once

#include <string>

#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace chimera {

/// A simulation as JSON: makespan, bubble_ratio, lower_bound and the other results of the timeline, the idle time by
/// cause, the critical path, and for each worker busy, idle, peaks, bubbles, all-reduces, memory over time and its ops
/// with start and end. The grammar stands in docs/schedule_format.md. Numbers carry all their digits.
[[nodiscard]] std::string to_json(const Schedule& schedule, const Timeline& timeline, const Explanation& explanation);

}  // namespace chimera
