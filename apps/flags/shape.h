#pragma once

// The schedule files of a command line. A file is read from the path of the NAME argument, or from standard input for
// `-`.

#include <string>
#include <vector>

#include "schedule/schedule.h"

namespace chimera::apps {

/// Reads a schedule file, or standard input for `-`, without validation. Prints a note on standard error if it ignores
/// a part of the file. Throws ConfigError if the file cannot be opened or parsed.
[[nodiscard]] Schedule load_schedule(const std::string& path);

/// Reads a schedule file as load_schedule() does, and validates it. Throws ScheduleError with the first violation.
[[nodiscard]] Schedule read_schedule(const std::string& path);

/// Prints each line on standard error.
void print_notes(const std::vector<std::string>& notes);

}  // namespace chimera::apps
