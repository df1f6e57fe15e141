#pragma once
// Data for the scripts of pages (render/page/data.js, draw.js).

#include <nlohmann/json_fwd.hpp>

#include "render/panel.h"

namespace chimera {

/// Returns a panel's ops, messages, bubbles, all-reduces and memory as typed arrays (render/encoding.h), and its
/// replicas' names and colors. Times are 32-bit floats, which must hold the makespan.
[[nodiscard]] nlohmann::ordered_json page_panel(const Panel& panel);

/// Returns colors and hatches for all panels: `causes`, `replicaTile`, `allReduceColor`, `updateColor`.
[[nodiscard]] nlohmann::ordered_json page_colors();

}  // namespace chimera
