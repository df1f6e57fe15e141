#pragma once
// Writes the text of an SVG picture, for timelines (svg.h) and stacked bars (bars.h).

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <utility>

#include "render/encoding.h"

namespace chimera {

/// Returns a length in pixels, rounded to hundredths.
[[nodiscard]] inline std::string pixels(double value) { return fmt::format("{:g}", std::round(value * 100) / 100); }

/// The text of a picture in progress.
class SvgText {
 public:
  /// Opens a picture with a title, and its style sheet. Sizes are in pixels. The caller adds rules with put(), and
  /// closes the style element with put("</style>\n").
  void begin(double width, double height, const std::string& title) {
    put(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" viewBox="0 0 {0} {1}" role="img">)"
        "\n<title>{2}</title>\n",
        pixels(width), pixels(height), escape_markup(title));
    put("<style>\ntext {{ font: 11px system-ui, 'DejaVu Sans', sans-serif; fill: #1b1b1b; pointer-events: none }}\n"
        ".title {{ font-size: 14px; font-weight: bold }}\n");
  }

  /// Appends formatted text.
  template <class... Values>
  void put(fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Values>(values)...);
  }

  /// Closes the picture and returns its text, once.
  [[nodiscard]] std::string end() {
    text_ += "</svg>\n";
    return std::move(text_);
  }

 private:
  std::string text_;
};

}  // namespace chimera
