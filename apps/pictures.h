#pragma once

// Pictures of `chimera schedule` and `chimera simulate`, and the flag for their colors. A Panel (render/panel.h) is one
// schedule with the times of its ops; draw_panels() draws one or several in the format of --format.

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "flags/outputs.h"
#include "render/panel.h"
#include "render/text.h"

namespace chimera {
namespace apps {

enum class ColorChoice : std::uint8_t { Auto, Always, Never };

}  // namespace apps

template <>
inline constexpr auto kNames<apps::ColorChoice> = std::to_array<Named<apps::ColorChoice>>(
    {{apps::ColorChoice::Auto, "auto"}, {apps::ColorChoice::Always, "always"}, {apps::ColorChoice::Never, "never"}});

namespace apps {

/// The flags and their values.
struct PictureFlags {
  ColorChoice color = ColorChoice::Auto;  // --color

  void add_to(CLI::App& app);
  /// Returns the text style for the file `output` (empty: standard output). `auto` uses colors only on a terminal, and
  /// not if NO_COLOR (no-color.org) is set or if TERM is unset or `dumb`.
  [[nodiscard]] TextStyle text_style(const std::string& output) const;
};

/// Throws ConfigError if `with` has schedules and the format can show only one.
void check_format(Format format, const std::vector<std::string>& with);

/// Returns the first panel as `svg` or `perfetto`, or all panels as `html`.
[[nodiscard]] std::string draw_panels(Format format, const std::vector<Panel>& panels);

}  // namespace apps
}  // namespace chimera
