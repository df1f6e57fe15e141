#pragma once

// Reads and writes the costs of a simulation (costs.h) as JSON. `plan`, `model` and measured training runs write such
// files, and the flag --costs reads them. Costs of links between pairs of workers, for --links, may also be CSV.
// docs/schedule_format.md describes both.

#include <string>

#include "simulate/costs.h"

namespace chimera {

/// Reads the costs of a model with `stages` stages; docs/schedule_format.md has the grammar. Throws ConfigError, with
/// the position, if the text does not follow it, a number is negative or not finite, or a list has the wrong length.
/// `source` names the text in messages.
[[nodiscard]] CostModel costs_from_json(const std::string& text, const std::string& source, std::int64_t stages);

/// Returns text from which costs_from_json() reads equal costs, except the values of --sync, --blocking-sends and
/// --data-parallel, which are not part of the format.
[[nodiscard]] std::string costs_to_json(CostModel costs);

/// Reads the costs of links between each pair of workers, as `bench` measures them on a cluster with unequal links.
/// They replace the single alpha and beta of LinkCosts. The text is a JSON object with `alphas` and optional `betas`,
/// one row per sender, or CSV: the header `from,to,alpha,beta` (beta is optional), then one line for each ordered pair
/// of different workers 0 .. D-1, in any order (docs/schedule_format.md). Throws ConfigError, with the position, for
/// anything else. `source` names the text in messages.
[[nodiscard]] LinkMatrix links_from_text(const std::string& text, const std::string& source);

}  // namespace chimera
