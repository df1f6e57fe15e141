#pragma once

// The playground is a web page about pipeline schedules that sends requests as JSON. These functions read the fields
// that several kinds of requests share: schedules, costs (times and bytes of ops), models, and workloads (such as the
// micro-batch size). Most missing fields have defaults. A field with a wrong type or value, or an unknown field, is a
// ConfigError that names the field.

#include <cstdint>
#include <string>

#include "answers/schedule_request.h"
#include "core/json_value.h"
#include "model_config/config.h"
#include "model_config/footprint.h"

namespace chimera::playground {

/// Maximum number of ops in a schedule of the playground.
inline constexpr std::int64_t kMaxPlaygroundOps = 1'000'000;

/// Return the value of field `name` of the object `value`, or `otherwise` if it is missing. Throw ConfigError for a
/// value of another type, or below `least`.
[[nodiscard]] double number_or(const JsonValue& value, const char* name, double otherwise);
[[nodiscard]] std::int64_t count_or(const JsonValue& value, const char* name, std::int64_t otherwise,
                                    std::int64_t least = 0);
[[nodiscard]] bool bool_or(const JsonValue& value, const char* name, bool otherwise);
[[nodiscard]] std::string text_or(const JsonValue& value, const char* name, const std::string& otherwise);

/// Reads the object {"name", "stages", "micro_batches", "parameters"} or {"text"}.
[[nodiscard]] ScheduleRequest requested_schedule(const JsonValue& value);

/// Reads `model`, the name of a preset (required), and `overrides`, an object that replaces single fields such as
/// `layers`. Throws ConfigError for invalid values.
[[nodiscard]] ModelConfig requested_model(const JsonValue& request);
/// Reads `micro_batch_size`, `sequence`, `dtype`, `optimizer` and `dropout`. Throws ConfigError for invalid values.
[[nodiscard]] Workload requested_workload(const JsonValue& request);

}  // namespace chimera::playground
