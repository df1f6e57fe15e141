#include "pictures.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

#include "core/error.h"
#include "core/terminal.h"
#include "flags/outputs.h"
#include "flags/shape.h"
#include "flags/values.h"
#include "render/html.h"
#include "render/perfetto.h"
#include "render/svg.h"

namespace chimera::apps {
namespace {

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

}  // namespace

void PictureFlags::add_to(CLI::App& app) {
  complete_names(app.add_option("--with", with,
                                "also draw this schedule: a NAME with the same D and N, FILE.json or FILE.csv; "
                                "repeatable")
                     ->type_name("NAME")
                     ->take_all()
                     ->allow_extra_args(false),
                 schedule_names());
  add_choice(app, "--color", color, "whether text is colored (default auto: on a terminal, unless NO_COLOR is set)");
}

TextStyle PictureFlags::text_style(const std::string& output) const {
  // A picture in a file keeps its width and has no colors unless asked for. On a terminal it is folded.
  return {.colored = color == ColorChoice::Always || (color == ColorChoice::Auto && output.empty() &&
                                                      supports_escapes(STDOUT_FILENO) && !is_set("NO_COLOR")),
          .columns = output.empty() ? terminal_columns(STDOUT_FILENO) : 0};
}

void PictureFlags::check_format(Format format) const {
  if (with.empty() || format == Format::Text || format == Format::Html) return;
  throw ConfigError(fmt::format("--format {} shows one schedule; --with goes with text and html", to_text(format)));
}

std::vector<Schedule> PictureFlags::further_schedules(const Schedule& first, const ShapeFlags& shape,
                                                      const MakeSchedule& make) const {
  std::vector<Schedule> schedules;
  for (const std::string& name : with) {
    if (names_schedule_file(name)) {
      schedules.push_back(read_schedule(name));
    } else {
      const Generator& generator = find_generator(name);
      schedules.push_back(make(generator, shape.shape_next_to(first, generator)));
    }
  }
  return schedules;
}

std::string draw_panels(Format format, const std::vector<Panel>& panels) {
  const Panel& first = panels.front();
  if (format == Format::Svg) return to_svg(first);
  if (format == Format::Perfetto) return to_perfetto(first.schedule, first.timeline, first.explanation);
  return to_html(panels);
}

}  // namespace chimera::apps
