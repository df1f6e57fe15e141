#pragma once
// Links between pairs of workers, as JSON or CSV. The grammar stands in docs/schedule_format.md.

#include <string>

#include "schedule/json_value.h"
#include "simulate/costs.h"

namespace chimera {

/// Reads `alphas` and perhaps `betas`, a row for each sender. Throws ConfigError, with the place, for rows that are not
/// as many as they are long, numbers that are negative or not finite, and betas of another size than alphas.
[[nodiscard]] LinkMatrix read_link_matrix(const JsonValue& value);

/// Reads a file of links: where its first character is `{`, a JSON object with these two fields and no other; else CSV,
/// a line `from,to,alpha,beta` and then one for each ordered pair of different workers, 0 .. D-1, in any order; beta
/// may be left out of all lines. Throws ConfigError, with the place, for anything else. `source` names the text.
[[nodiscard]] LinkMatrix links_from_text(const std::string& text, const std::string& source);

}  // namespace chimera
