#pragma once

#include <string>

#include "schedule/schedule.h"

namespace chimera::apps {

/// The schedule in a file, or on standard input for `-`: JSON or CSV, as its first character says. What the text says
/// beyond a schedule is noted on standard error. Throws ConfigError where there is no schedule to read.
[[nodiscard]] Schedule load_schedule(const std::string& path);

/// The same, for a schedule that must be valid. Throws ScheduleError with the first violation where it is not.
[[nodiscard]] Schedule read_schedule(const std::string& path);

}  // namespace chimera::apps
