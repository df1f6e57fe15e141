#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "options.h"
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

struct PictureFlags {
  std::vector<std::string> with;  // schedules to draw with the first
  ColorChoice color = ColorChoice::Auto;

  void add_to(CLI::App& app);
  /// Returns the text style for `output` (empty: standard output). NO_COLOR (no-color.org) and TERM=dumb disable
  /// `auto`.
  [[nodiscard]] TextStyle text_style(const std::string& output) const;
  /// Throws ConfigError if --with is given and the format shows one schedule only.
  void check_format(Format format) const;
  /// Returns the schedules of --with: names with the shape flags that apply and D and N of `first`, or .json and .csv
  /// files of valid schedules.
  [[nodiscard]] std::vector<Schedule> beside(const Schedule& first, const ShapeFlags& shape,
                                             const MakeSchedule& make = as_asked) const;
};

/// Draws the first panel as `svg` or `perfetto`, or all panels as `html`.
[[nodiscard]] std::string drawn(Format format, const std::vector<Panel>& panels);

}  // namespace apps
}  // namespace chimera
