#pragma once
// A schedule as JSON, both ways. The grammar stands in docs/schedule_format.md.

#include <string>

#include "schedule/schedule.h"

namespace chimera {

/// The schedule as JSON, one line a worker.
[[nodiscard]] std::string to_json(const Schedule& schedule);

/// Reads what to_json writes. Faults of meaning (a wrong worker, a doubled op, an id out of range) are read as they
/// are, for check() to report; ids beyond their type become its largest value. Throws ConfigError, with the place, for
/// anything outside the grammar: syntax, unknown or missing field, wrong type, unknown op, another format or version,
/// more than kMostOps ops. `source` names the text in the message.
[[nodiscard]] Schedule schedule_from_json(const std::string& text, const std::string& source);

}  // namespace chimera
