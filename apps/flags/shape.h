#pragma once

// The schedules of a command line: the shape flags of `chimera train` (ShapeFlags), and schedule files. A file is read
// from the path of the NAME argument, or from standard input for `-`.

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "answers/schedule_request.h"
#include "schedule/schedule.h"

namespace chimera::apps {

/// The shape flags of a command and their parsed values.
struct ShapeFlags : ShapeRequest {
  CLI::Option* stages = nullptr;
  CLI::Option* micro_batches = nullptr;

  /// Adds the flags to a command. The object must stay where it is, because the flags write into it.
  void add_to(CLI::App& app);
};

/// If the name of the schedule is that of a file (names_schedule_file()), makes it the file. Throws ConfigError if
/// there are shape flags too; `what` begins the message.
void take_file(ScheduleRequest& schedule, const std::string& what);

/// Reads a schedule file, or standard input for `-`, without validation. Prints a note on standard error if it ignores
/// a part of the file. Throws ConfigError if the file cannot be opened or parsed.
[[nodiscard]] Schedule load_schedule(const std::string& path);

/// Reads a schedule file as load_schedule() does, and validates it. Throws ScheduleError with the first violation.
[[nodiscard]] Schedule read_schedule(const std::string& path);

/// Prints each line on standard error.
void print_notes(const std::vector<std::string>& notes);

}  // namespace chimera::apps
