#pragma once

#include <string>
#include <string_view>

#include "schedule/schedule.h"
#include "schedule/text_source.h"

// A schedule as JSON, both ways. The grammar stands in docs/schedule_format.md.

namespace chimera {

/// The schedule as JSON, one line a worker.
[[nodiscard]] std::string to_json(const Schedule& schedule);
/// Everything but the ops, as a JSON object on one line, without a line end: what plain CSV cannot say.
[[nodiscard]] std::string header_to_json(const Schedule& schedule);

/// Reads what to_json writes, to the end of the text. Faults of meaning (a wrong worker, a doubled op, an id out of
/// range) are read as they are, for check() to report; ids beyond their type become its largest value. Throws
/// ConfigError, with the place, for anything outside the grammar: syntax, unknown, doubled or missing field, wrong
/// type, unknown op, a paired op without one behind it that is not, another format or version. Memory follows the ops
/// and placements read so far, and more than kMostOps of these are refused, as are 64 KiB without a value.
[[nodiscard]] Schedule schedule_from_json(TextSource& text);
/// The same of a text in memory; `source` names it in messages.
[[nodiscard]] Schedule schedule_from_json(std::string_view text, const std::string& source);
/// Reads what header_to_json writes, to the end of the line. Throws as schedule_from_json does.
[[nodiscard]] Schedule header_from_json(TextSource& text);

}  // namespace chimera
