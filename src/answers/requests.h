#pragma once

// The schedules in requests of the playground, a web page about pipeline schedules that sends requests as JSON.

#include <cstdint>

#include "answers/schedule_request.h"
#include "core/json_value.h"

namespace chimera::playground {

/// Maximum number of ops in a schedule of the playground.
inline constexpr std::int64_t kMaxPlaygroundOps = 1'000'000;

/// Reads the object {"name", "stages", "micro_batches", "parameters"} or {"text"}.
[[nodiscard]] ScheduleRequest requested_schedule(const JsonValue& value);

}  // namespace chimera::playground
