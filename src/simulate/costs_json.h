#pragma once

#include <cstdint>
#include <string>

#include "simulate/costs.h"

// Costs as JSON: written by `plan`, `model` and measured runs, read by --costs.

namespace chimera {

/// Reads the costs of a model with `stages` stages; docs/schedule_format.md has the grammar. Throws ConfigError, with
/// the position, if the text does not follow it, a number is negative or not finite, or a list has the wrong length.
/// `source` names the text in messages.
[[nodiscard]] CostModel costs_from_json(const std::string& text, const std::string& source, std::int64_t stages);

/// Writes costs that costs_from_json reads as equal. Omits settings of --sync, --blocking-sends and --data-parallel.
[[nodiscard]] std::string costs_to_json(const CostModel& costs);

}  // namespace chimera
