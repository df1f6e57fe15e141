#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "render/panel.h"

namespace chimera {

/// Most ops that one page holds, over all its panels: about 40 MB.
inline constexpr std::int64_t kMostPageOps = 1'000'000;

/// One self-contained HTML page: the panels below each other on one time axis, to zoom and to ask, and a table of their
/// totals. It loads nothing. Titles may hold any text. Ops and messages are embedded as typed arrays in base64, times
/// as 32-bit floats: about 40 bytes an op in all. Throws ConfigError for no panel, or more than kMostPageOps ops.
[[nodiscard]] std::string to_html(const std::vector<Panel>& panels);

}  // namespace chimera
