#pragma once

// Pictures of `chimera schedule` and `chimera simulate`, and the flag for their colors. A Panel (render/panel.h) is one
// schedule with the times of its ops; draw_panels() draws one or several in the format of --format.

#include "flags/outputs.h"
#include "render/panel.h"
#include "render/text.h"

namespace chimera {
namespace apps {

enum class ColorChoice : std::uint8_t { Auto, Always, Never };

}  // namespace apps

template <>
inline constexpr auto kNames<apps::ColorChoice> = in_order<apps::ColorChoice>("auto", "always", "never");

namespace apps {

/// Adds --color.
void add_color(CLI::App& app, ColorChoice& color);
/// Returns the text style for the file `output` (empty: standard output). `auto` uses colors only on a terminal, and
/// not if NO_COLOR (no-color.org) is set or if TERM is unset or `dumb`.
[[nodiscard]] TextStyle text_style(ColorChoice color, const std::string& output);

/// Throws ConfigError if `with`, the values of --with, has further schedules and the format can show only one.
void check_format(Format format, const std::vector<std::string>& with);

/// Returns the first panel as `svg` or `perfetto`, or, for every other format, all panels as `html`. `panels` must not
/// be empty.
[[nodiscard]] std::string draw_panels(Format format, const std::vector<Panel>& panels);

}  // namespace apps
}  // namespace chimera
