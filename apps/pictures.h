#pragma once
// Flags of the subcommands that draw, and what they draw.

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "options.h"
#include "render/panel.h"
#include "render/text.h"

namespace chimera {
namespace apps {

/// --color.
enum class ColorChoice : std::uint8_t { Auto, Always, Never };

}  // namespace apps

template <>
inline constexpr auto kNames<apps::ColorChoice> = std::to_array<Named<apps::ColorChoice>>(
    {{apps::ColorChoice::Auto, "auto"}, {apps::ColorChoice::Always, "always"}, {apps::ColorChoice::Never, "never"}});

namespace apps {

/// --with, --color.
struct PictureFlags {
  std::vector<std::string> with;  // schedules to show beside the first one
  ColorChoice color = ColorChoice::Auto;

  void add_to(CLI::App& app);
  /// The style of text that goes to `output` (empty: standard output): coloured and folded on a terminal, else plain.
  /// NO_COLOR (no-color.org) and TERM=dumb turn `auto` off.
  [[nodiscard]] TextStyle text_style(const std::string& output) const;
  /// Throws ConfigError where schedules stand side by side in a format that shows one only.
  void check_format(Format format) const;
  /// The schedules named by --with. A name takes those of the shape flags that apply to it, and D and N of `first`;
  /// what ends in .json or .csv is a file, which must hold a valid schedule.
  [[nodiscard]] std::vector<Schedule> beside(const Schedule& first, const ShapeFlags& shape,
                                             const MakeSchedule& make = as_asked) const;
};

/// `svg` or `perfetto`, of the first panel, or `html`, of all.
[[nodiscard]] std::string drawn(Format format, const std::vector<Panel>& panels);

}  // namespace apps
}  // namespace chimera
