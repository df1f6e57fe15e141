#pragma once

#include <string>

#include "schedule/schedule.h"

namespace chimera::apps {

/// Reads a schedule in JSON or CSV; `-` reads standard input. Prints a note on standard error for content that it
/// ignores. Does not validate. Throws ConfigError if the file cannot be opened or parsed.
[[nodiscard]] Schedule load_schedule(const std::string& path);

/// Reads a schedule as load_schedule() does, and validates it. Throws ScheduleError, with the first violation, if it is
/// invalid.
[[nodiscard]] Schedule read_schedule(const std::string& path);

}  // namespace chimera::apps
