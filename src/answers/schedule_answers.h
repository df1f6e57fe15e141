#pragma once

#include <nlohmann/json.hpp>

#include "core/json_value.h"

// The playground's answers about one schedule: its picture and times, its file, and its faults. answers/playground.h
// reads the request and calls one of these functions. All throw ConfigError for an invalid request. All but
// answer_read() and answer_check() throw ScheduleError for an invalid schedule.

namespace chimera::playground {

using Json = nlohmann::ordered_json;

/// Returns the times of a schedule at given costs: a panel to draw, or only the totals.
[[nodiscard]] Json answer_simulate(const JsonValue& request);
/// Returns a schedule or its timeline as the text of a file.
[[nodiscard]] Json answer_export(const JsonValue& request);
/// Returns a schedule as JSON, without validation.
[[nodiscard]] Json answer_read(const JsonValue& request);
/// Returns the violations in a schedule, and a picture of the ops that can run.
[[nodiscard]] Json answer_check(const JsonValue& request);

}  // namespace chimera::playground
