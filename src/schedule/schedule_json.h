#pragma once
// Writes and reads schedules as JSON: the output of `chimera schedule --format json`, which all commands accept as
// input. The reader keeps only the schedule in memory, not the text, because a schedule may have 10^8 ops.
// docs/schedule_format.md has the grammar.

#include <string>
#include <string_view>

#include "core/text_source.h"
#include "schedule/schedule.h"

namespace chimera {

/// Returns the schedule as JSON, one line per worker.
[[nodiscard]] std::string to_json(const Schedule& schedule);
/// Returns the schedule without its ops, as JSON on one line without a line end.
[[nodiscard]] std::string header_to_json(const Schedule& schedule);

/// Reads the output of to_json(). Does not validate the schedule; check() does. An id that is too large for its type
/// becomes the largest value of the type, and a negative id becomes -1; check() then reports both.
///
/// Throws ConfigError, with the position in the file, if the text violates the grammar, has more than kMaxOps ops or
/// placements, or has more than 64 KiB without a JSON value (which limits the memory of the reader).
[[nodiscard]] Schedule schedule_from_json(TextSource& text);
[[nodiscard]] Schedule schedule_from_json(std::string_view text, const std::string& source);
/// Reads the output of header_to_json(), to the end of the line. Throws ConfigError as schedule_from_json() does.
[[nodiscard]] Schedule header_from_json(TextSource& text);

}  // namespace chimera
