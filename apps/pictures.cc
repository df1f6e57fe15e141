#include "pictures.h"

#include <unistd.h>

#include <cstdlib>

#include "core/reject.h"
#include "core/terminal.h"
#include "flags/outputs.h"
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

void add_color(CLI::App& app, ColorChoice& color) {
  add_choice(app, "--color", color, "colors (default auto: on a terminal, unless NO_COLOR is set)");
}

TextStyle text_style(ColorChoice color, const std::string& output) {
  // A picture in a file keeps its width and has no colors unless asked for. On a terminal it is folded.
  return {.colored = color == ColorChoice::Always || (color == ColorChoice::Auto && output.empty() &&
                                                      supports_escapes(STDOUT_FILENO) && !is_set("NO_COLOR")),
          .columns = output.empty() ? terminal_columns(STDOUT_FILENO) : 0};
}

void check_format(Format format, const std::vector<std::string>& with) {
  if (with.empty() || format == Format::Text || format == Format::Html) return;
  reject("--format {} shows one schedule; --with goes with text and html", to_text(format));
}

std::string draw_panels(Format format, const std::vector<Panel>& panels) {
  const Panel& first = panels.front();
  if (format == Format::Svg) return to_svg(first);
  if (format == Format::Perfetto) return to_perfetto(first.schedule, first.timeline, first.explanation);
  return to_html(panels);
}

}  // namespace chimera::apps
