#pragma once

// Flags of `chimera schedule` and `chimera simulate` for pictures: other schedules to draw next to the first (--with),
// and colors. A Panel (render/panel.h) is one schedule with the times of its ops; draw_panels() draws one or several in
// the format of --format.

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "flags/outputs.h"
#include "flags/shape.h"
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
  std::vector<std::string> with;          // --with: names or files of further schedules to draw
  ColorChoice color = ColorChoice::Auto;  // --color

  void add_to(CLI::App& app);
  /// Returns the text style for the file `output` (empty: standard output). `auto` uses colors only on a terminal, and
  /// not if NO_COLOR (no-color.org) is set or if TERM is unset or `dumb`.
  [[nodiscard]] TextStyle text_style(const std::string& output) const;
  /// Throws ConfigError if --with is given and the format can show only one schedule.
  void check_format(Format format) const;
  /// Returns the schedules of --with, in its order, to draw next to `first`. Each is a file (names_schedule_file())
  /// with a valid schedule, or a name. For a name, `make` generates the schedule with as many stages and micro-batches
  /// as `first`, and with the flags in `shape` that apply to it. The default of `make` gives all other parameters their
  /// default values; fastest() (flags/costs.h) chooses the best values of some. Throws ConfigError or ScheduleError for
  /// a wrong name, shape or file.
  [[nodiscard]] std::vector<Schedule> further_schedules(const Schedule& first, const ShapeFlags& shape,
                                                        const MakeSchedule& make = generate_as_asked) const;
};

/// Returns the first panel as `svg` or `perfetto`, or all panels as `html`.
[[nodiscard]] std::string draw_panels(Format format, const std::vector<Panel>& panels);

}  // namespace apps
}  // namespace chimera
