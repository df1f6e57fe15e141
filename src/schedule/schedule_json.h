#pragma once
// Writes and reads schedules as JSON: the output of `chimera schedule --format json`, which all commands accept as
// input. docs/schedule_format.md has the grammar.

#include <string_view>

#include "schedule/schedule.h"

namespace chimera {

/// Most ops of a file that the readers of JSON and CSV accept. They keep the whole file in memory.
inline constexpr std::int64_t kMaxOpsOfFile = 10'000'000;

/// Returns the schedule as JSON, one line per worker.
[[nodiscard]] std::string to_json(const Schedule& schedule);
/// Returns the schedule without its ops, as JSON on one line without a line end.
[[nodiscard]] std::string header_to_json(const Schedule& schedule);

/// Reads the output of to_json(). Does not validate the schedule; check() does. An id that is too large for its type
/// becomes the largest value of the type, and a negative id becomes -1; check() then reports both.
///
/// Throws ConfigError, with the position in the file, if the text violates the grammar or has more than kMaxOpsOfFile
/// ops. `source` is the name of the file for messages.
[[nodiscard]] Schedule schedule_from_json(std::string_view text, const std::string& source);
/// Reads the output of header_to_json(); the result has no workers. Throws ConfigError as schedule_from_json() does.
[[nodiscard]] Schedule header_from_json(std::string_view text, const std::string& source);

}  // namespace chimera
