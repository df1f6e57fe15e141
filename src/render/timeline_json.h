#pragma once

#include <string>

#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace chimera {

/// A simulation as JSON: makespan, bubble_ratio, lower_bound, and for each worker busy, idle, peak_in_flight and its
/// ops with start and end. Numbers carry all their digits.
[[nodiscard]] std::string to_json(const Schedule& schedule, const Timeline& timeline);

}  // namespace chimera
