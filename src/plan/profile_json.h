#pragma once
// What the JSON files of profiles have in common: limits, and links.

#include <nlohmann/json.hpp>

#include "plan/machine.h"
#include "schedule/json_value.h"

namespace chimera {

inline constexpr double kMostSeconds = 1e9;  // of anything: 30 years
inline constexpr double kMostBytes = 1e18;
inline constexpr double kMostRatio = 1e6;  // of a slow-down and the like

/// `alpha` and `beta`, and `burst` where there is one. Throws ConfigError, naming the entry, for anything else.
[[nodiscard]] LinkTimes read_link(const JsonValue& value);
/// What read_link() reads back to the same value.
[[nodiscard]] nlohmann::ordered_json link_json(const LinkTimes& times);

}  // namespace chimera
