#pragma once

#include <cstdint>
#include <string>

#include "render/panel.h"

namespace chimera {

/// Most ops that one SVG picture draws: about 40 MB.
inline constexpr std::int64_t kMostSvgOps = 200'000;

/// The panel as an SVG picture: a row a worker, a box an op with its label where it fits, idle time hatched by cause,
/// all-reduces and memory on lanes below each row, the critical path outlined, and a legend. Every box says in its
/// title what it is. Throws ConfigError for more than kMostSvgOps ops.
[[nodiscard]] std::string to_svg(const Panel& panel);

}  // namespace chimera
