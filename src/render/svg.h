#pragma once
// Draws a schedule with its times (Panel in panel.h) as an SVG picture, to scale, for documents and slides. Schedules
// with more than kMaxSvgOps ops need an HTML page (html.h).

#include "render/panel.h"

namespace chimera {

/// Maximum number of ops in a picture: about 40 MB.
inline constexpr std::int64_t kMaxSvgOps = 200'000;

/// The time axis of several pictures, so that equal times are equally long in all of them.
struct SvgAxis {
  double length = 0;  // Length of the axis in units of time; it starts at 0
  double width = 0;   // Width of the whole picture in pixels
};

/// Returns an axis for the longest panel. The pictures are `width` pixels wide, or wider if an op would have less than
/// 14 pixels on average.
[[nodiscard]] SvgAxis common_axis(const std::vector<Panel>& panels, double width);

/// Returns an SVG picture with tooltips: a row per worker, a box per op, idle time hatched by its cause, separate rows
/// for all-reduces and memory, the critical path outlined, and a legend. If `axis` is empty, the picture is as wide as
/// the labels of its ops need. Throws ConfigError for more than kMaxSvgOps ops.
[[nodiscard]] std::string to_svg(const Panel& panel, const std::optional<SvgAxis>& axis = std::nullopt);

}  // namespace chimera
