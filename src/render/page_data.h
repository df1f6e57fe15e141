#pragma once
// Converts a Panel (panel.h: a schedule with its times) to JSON for the JavaScript that draws it (render/page/data.js,
// draw.js). HTML pages (html.h) and the playground, a web page that plans and draws schedules, use it.

#include <nlohmann/json_fwd.hpp>

#include "render/panel.h"

namespace chimera {

/// Returns a panel's ops, messages, bubbles, all-reduces and memory as typed arrays (render/encoding.h), and the names
/// and colors of its replicas. Times are 32-bit floats; the makespan must not exceed their range.
[[nodiscard]] nlohmann::ordered_json page_panel(const Panel& panel);

/// Returns colors and hatches for all panels: `causes`, `replicaTile`, `allReduceColor`, `updateColor`.
[[nodiscard]] nlohmann::ordered_json page_colors();

}  // namespace chimera
