#pragma once

#include <string>

#include "schedule/schedule.h"

namespace chimera::apps {

/// Reads a JSON or CSV schedule, from standard input for `-`. Reports unused content on standard error. Throws
/// ConfigError if the file has no schedule.
[[nodiscard]] Schedule load_schedule(const std::string& path);

/// Throws ScheduleError, with the first violation, if the schedule is not valid.
[[nodiscard]] Schedule read_schedule(const std::string& path);

}  // namespace chimera::apps
