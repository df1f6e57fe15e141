#pragma once
// An interactive HTML page with one or more schedules and their times (Panel in panel.h). The file contains the data
// (page_panel(), page_colors(), which the playground, apps/playground.cc, uses too) and the scripts of render/page, and
// refers to no other file or server.

#include <nlohmann/json_fwd.hpp>

#include "render/panel.h"

namespace chimera {

/// Maximum number of ops on a page: about 40 MB.
inline constexpr std::int64_t kMaxPageOps = 1'000'000;

/// Returns a self-contained HTML page: interactive panels on a common time axis, and a table of totals. Ops and
/// messages are embedded as typed arrays in base64, times as 32-bit floats, about 40 bytes per op. Throws ConfigError
/// if there is no panel, more than kMaxPageOps ops, or a makespan beyond a float's range.
[[nodiscard]] std::string to_html(const std::vector<Panel>& panels);

/// Returns, for the JavaScript that draws it (render/page/data.js, draw.js), a panel's ops, messages, bubbles,
/// all-reduces and memory as typed arrays (render/encoding.h), and the names and colors of its replicas. Times are
/// 32-bit floats; the makespan must not exceed their range.
[[nodiscard]] nlohmann::ordered_json page_panel(const Panel& panel);

/// Returns colors and hatches for all panels: `causes`, `replicaTile`, `allReduceColor`, `updateColor`.
[[nodiscard]] nlohmann::ordered_json page_colors();

}  // namespace chimera
