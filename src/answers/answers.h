#pragma once
// Answers to requests: one function for each value of `do`. All throw ConfigError for an invalid request, and
// ScheduleError for an invalid schedule.

#include <nlohmann/json.hpp>

#include "answers/playground.h"
#include "core/json_value.h"

namespace chimera::playground {

using Json = nlohmann::ordered_json;

/// Returns the names that the page offers: schedules with parameters, placements, models, data types, optimizers; and
/// its colors.
[[nodiscard]] Json catalog();
/// Returns the times of a schedule at given costs: a panel to draw, or only the totals.
[[nodiscard]] Json simulated(const JsonValue& request);
/// Returns a schedule or its timeline as the text of a file.
[[nodiscard]] Json exported(const JsonValue& request);
/// Returns a schedule as JSON, without validation.
[[nodiscard]] Json read_as_it_is(const JsonValue& request);
/// Returns the violations in a schedule, and a picture of the ops that can run.
[[nodiscard]] Json checked(const JsonValue& request);
[[nodiscard]] Json searched(const JsonValue& request, const Progress& progress);
/// Returns the stages of a partitioned model and the memory of each worker.
[[nodiscard]] Json modeled(const JsonValue& request);
[[nodiscard]] Json planned(const JsonValue& request);

}  // namespace chimera::playground
