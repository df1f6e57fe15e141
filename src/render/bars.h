#pragma once
// Stacked bars: what a few parts have in several wholes, such as the memory of stages.

#include <string>
#include <vector>

#include "render/colors.h"

namespace chimera {

/// One part of every bar.
struct BarPart {
  std::string name;
  Color color;  // black text is legible on it
  char letter;  // of which it consists in text
};

/// One whole: its name, and the amount of each part, in bytes.
struct Bar {
  std::string label;
  std::vector<double> amounts;  // [part], none negative
};

struct BarChart {
  std::string title;
  std::vector<BarPart> parts;
  std::vector<Bar> bars;
};

/// A line a bar, `width` letters the longest, with its sum behind, and below what the letters mean. An end of a part is
/// rounded to the nearest letter.
[[nodiscard]] std::string to_text(const BarChart& chart, int width = 60);

/// The chart as an SVG picture, a row a bar, with a legend and an axis in bytes. Every part says in its title what it
/// is and how much.
[[nodiscard]] std::string to_svg(const BarChart& chart);

}  // namespace chimera
