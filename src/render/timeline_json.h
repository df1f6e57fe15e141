#pragma once
// The result of a simulation as JSON, for scripts of users (`chimera simulate --format json`).

#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace chimera {

/// Returns the timeline of a schedule, and its explanation (bubbles and their causes, messages, memory), as JSON.
/// `more` is further fields of the object, each after a comma. Numbers have as many digits as they need to be read back
/// exactly. docs/schedule_format.md describes the fields.
[[nodiscard]] std::string to_json(const Schedule& schedule, const Timeline& timeline, const Explanation& explanation,
                                  const std::string& more = "");

}  // namespace chimera
