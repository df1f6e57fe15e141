#pragma once
// What is answered to each kind of request. All throw ConfigError for what a request says wrong, and ScheduleError for
// a schedule that cannot run.

#include <nlohmann/json.hpp>

#include "answers/playground.h"
#include "schedule/json_value.h"

namespace chimera::playground {

using Json = nlohmann::ordered_json;

/// All that the page offers by name: schedules with their parameters, placements, models, words, colours.
[[nodiscard]] Json catalog();
/// A schedule's times at given costs: the panel that pages draw, or its totals alone.
[[nodiscard]] Json simulated(const JsonValue& request);
/// A schedule or its timeline as the text of a file.
[[nodiscard]] Json exported(const JsonValue& request);
/// A schedule in JSON, right or wrong.
[[nodiscard]] Json read_as_it_is(const JsonValue& request);
/// What is wrong with a schedule, and a picture of how far it runs.
[[nodiscard]] Json checked(const JsonValue& request);
/// A faster schedule.
[[nodiscard]] Json searched(const JsonValue& request, const Progress& progress);
/// A model cut into stages, and what each worker holds.
[[nodiscard]] Json modelled(const JsonValue& request);
/// Ranked ways to train.
[[nodiscard]] Json planned(const JsonValue& request);

}  // namespace chimera::playground
