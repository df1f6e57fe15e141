#pragma once
// Answers by kind of request. All throw ConfigError for an invalid request, and ScheduleError for a schedule that
// cannot run.

#include <nlohmann/json.hpp>

#include "answers/playground.h"
#include "schedule/json_value.h"

namespace chimera::playground {

using Json = nlohmann::ordered_json;

/// Returns the page's names: schedules with parameters, placements, models, words, colors.
[[nodiscard]] Json catalog();
/// Returns times at given costs: a panel to draw, or just totals.
[[nodiscard]] Json simulated(const JsonValue& request);
/// Returns the file of a schedule or its timeline.
[[nodiscard]] Json exported(const JsonValue& request);
/// Returns a schedule as JSON, valid or not.
[[nodiscard]] Json read_as_it_is(const JsonValue& request);
/// Returns a schedule's faults, and a picture of the part that runs.
[[nodiscard]] Json checked(const JsonValue& request);
[[nodiscard]] Json searched(const JsonValue& request, const Progress& progress);
/// Returns a partitioned model and the memory of each worker.
[[nodiscard]] Json modeled(const JsonValue& request);
[[nodiscard]] Json planned(const JsonValue& request);

}  // namespace chimera::playground
