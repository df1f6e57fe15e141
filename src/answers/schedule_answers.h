#pragma once

// The playground is a web page that draws and checks pipeline schedules. These functions answer its requests about
// schedules: picture and times, file, violations, ranking. answer() (answers/playground.h) calls the function
// that the request names. All throw ConfigError for an invalid request. answer_simulate() and answer_export() also
// throw ScheduleError for an invalid schedule.

#include "core/json_value.h"

namespace chimera::playground {

using Json = nlohmann::ordered_json;

/// Simulates a schedule. Returns its totals, such as makespan (duration of a step) and bubble ratio (idle share of it),
/// and the data of its picture (`panel`) unless the request asks for the totals only.
[[nodiscard]] Json answer_simulate(const JsonValue& request);
/// Ranks schedules as `chimera sweep` does. Returns `rows`, an object of columns each, the schedules that were
/// `left_out`, and `notes`.
[[nodiscard]] Json answer_sweep(const JsonValue& request);
/// Returns `text`: a file in the requested `format`, with a schedule, or with the times of its ops.
[[nodiscard]] Json answer_export(const JsonValue& request);
/// Reads a schedule, which may be CSV, and returns `text`: the schedule as a JSON file, without validation.
[[nodiscard]] Json answer_read(const JsonValue& request);
/// Returns the violations in a schedule. If there are any, and its stages and ops can be drawn, also returns a picture
/// that marks the ops that cannot run.
[[nodiscard]] Json answer_check(const JsonValue& request);

}  // namespace chimera::playground
