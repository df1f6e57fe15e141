#pragma once
// Costs as JSON. The grammar stands in docs/schedule_format.md.

#include <cstdint>
#include <string>

#include "simulate/costs.h"

namespace chimera {

/// Reads the costs of a model cut into `stages` stages. Throws ConfigError, with the place, for anything outside the
/// grammar: syntax, an unknown or missing field, a wrong type, a negative number or one that is not finite, a list of
/// another length than there are stages (or boundaries between them). `source` names the text in the message.
[[nodiscard]] CostModel costs_from_json(const std::string& text, const std::string& source, std::int64_t stages);

/// Costs in that grammar, numbers with all their digits: what costs_from_json reads as the same costs. What --sync,
/// --blocking-sends and --data-parallel say is not part of it.
[[nodiscard]] std::string costs_to_json(const CostModel& costs);

}  // namespace chimera
