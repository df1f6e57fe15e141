#pragma once
// Measured links in words.

#include <string>

#include "profile/link_bench.h"

namespace chimera {

/// alpha and beta in a row of a table.
[[nodiscard]] std::string link_line(const char* name, const LinkTimes& link);
/// How far lines are from what was measured at each size, in per cent: a row for messages, and one for sums.
[[nodiscard]] std::string fit_lines_of(const LinkSamples& links, const LinkTimes& messages, const LinkTimes& sums);

}  // namespace chimera
