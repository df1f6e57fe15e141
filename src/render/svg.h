#pragma once
// A timeline as an SVG picture, to scale, for documents and slides. A larger schedule needs html.h.

#include <cstdint>
#include <string>

#include "render/panel.h"

namespace chimera {

/// Maximum number of ops in a picture: about 40 MB.
inline constexpr std::int64_t kMostSvgOps = 200'000;

/// Returns an SVG picture with tooltips: a row per worker, a box per op, idle time hatched by cause, lanes for
/// all-reduces and memory, the critical path outlined, and a legend. Throws ConfigError for more than kMostSvgOps ops.
[[nodiscard]] std::string to_svg(const Panel& panel);

}  // namespace chimera
