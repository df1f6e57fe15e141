#pragma once

#include <string>

#include "options.h"
#include "schedule/schedule.h"

namespace chimera::apps {

/// Such a name ends in .json or .csv, has a `/`, or is `-` for standard input.
[[nodiscard]] bool names_schedule_file(const std::string& name);

/// Throws ConfigError if a shape flag is given. `what` starts the message.
void require_no_shape(const ShapeFlags& shape, const std::string& what);

/// `-` reads standard input. Prints a note on standard error for content that it ignores. Does not validate. Throws
/// ConfigError if the file cannot be opened or parsed.
[[nodiscard]] Schedule load_schedule(const std::string& path);

/// Also validates. Throws ScheduleError with the first violation.
[[nodiscard]] Schedule read_schedule(const std::string& path);

}  // namespace chimera::apps
