#pragma once

// Answers to three requests of the playground, a web page about pipeline schedules: `model` partitions a model into
// stages, `search` looks for a faster order of ops, and `plan` ranks configurations. answer() (playground.h) parses the
// request and calls one of these functions. docs/playground.md lists the fields of requests and answers. All throw
// ConfigError for an invalid request, and ScheduleError for an invalid schedule.

#include <functional>

#include "core/json_value.h"

namespace chimera::playground {

using Json = nlohmann::ordered_json;
/// Progress (playground.h).
using ReportProgress = std::function<void(const std::string&)>;

/// Returns the stages of a partitioned model, their costs, and the FLOPs and memory of each worker.
[[nodiscard]] Json answer_model(const JsonValue& request);
/// Returns the best schedule that a search found. During the search, calls `progress` with the JSON objects of
/// Progress (playground.h).
[[nodiscard]] Json answer_search(const JsonValue& request, const ReportProgress& progress);
/// Returns the configurations with the shortest step times for the `workers` and the `mini_batch` of the request,
/// fastest first: at most `top` (a field of the request, default 10). The result has a report, and for each
/// configuration the data with which the page can open it in another tab.
[[nodiscard]] Json answer_plan(const JsonValue& request);

}  // namespace chimera::playground
