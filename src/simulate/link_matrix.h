#pragma once

#include <string>

#include "core/json_value.h"
#include "simulate/costs.h"

// Costs of links between each pair of workers, as `bench` measures them on a cluster with unequal links. They replace
// the single alpha and beta of LinkCosts.

namespace chimera {

/// Reads `alphas` and optional `betas`, one row per sender. Throws ConfigError, with the position, if a matrix is not
/// square, sizes differ, or a number is negative or not finite.
[[nodiscard]] LinkMatrix read_link_matrix(const JsonValue& value);

/// Reads a JSON object with only these two fields, or CSV: the header `from,to,alpha,beta` (beta is optional), then one
/// line for each ordered pair of different workers 0 .. D-1, in any order (docs/schedule_format.md). Throws
/// ConfigError, with the position, for anything else. `source` names the text in messages.
[[nodiscard]] LinkMatrix links_from_text(const std::string& text, const std::string& source);

}  // namespace chimera
