#pragma once
// Schedules as JSON, the format of `--format json` and of files of users. The reader keeps only the schedule in memory,
// not the text, because a schedule may have 10^8 ops. docs/schedule_format.md has the grammar.

#include <string>
#include <string_view>

#include "core/text_source.h"
#include "schedule/schedule.h"

namespace chimera {

/// Returns the schedule as JSON, one line per worker.
[[nodiscard]] std::string to_json(const Schedule& schedule);
/// Returns everything but the ops, as JSON on one line without a line end.
[[nodiscard]] std::string header_to_json(const Schedule& schedule);

/// Reads the output of to_json. Does not validate the schedule; check() does. An id that is too large
/// for its type becomes the largest value of the type, and a negative id becomes -1.
///
/// Throws ConfigError, with the position in the file, if the text violates the grammar or has more than kMostOps ops or
/// placements. To limit memory, also throws it if the text has more than 64 KiB without a JSON value.
[[nodiscard]] Schedule schedule_from_json(TextSource& text);
[[nodiscard]] Schedule schedule_from_json(std::string_view text, const std::string& source);
/// Reads the output of header_to_json, to the end of the line. Throws like schedule_from_json.
[[nodiscard]] Schedule header_from_json(TextSource& text);

}  // namespace chimera
