#pragma once
// What the scripts of pages (render/page/data.js, draw.js) read.

#include <nlohmann/json_fwd.hpp>

#include "render/panel.h"

namespace chimera {

/// A panel: ops, messages, bubbles, sums and memory as typed arrays in base64 (render/encoding.h), times as 32-bit
/// floats, with names and colours of its replicas. The makespan must be within a float's range.
[[nodiscard]] nlohmann::ordered_json page_panel(const Panel& panel);

/// Colours and hatches that all panels share: `causes`, `replicaTile`, `allReduceColor`, `updateColor`.
[[nodiscard]] nlohmann::ordered_json page_colors();

}  // namespace chimera
