#pragma once
// Stacked bars of bytes, for the memory of workers (`chimera plan --explain`, `model`): in text and as an SVG picture.

#include <string>
#include <vector>

#include "render/colors.h"

namespace chimera {

/// A part of every stacked bar.
struct BarPart {
  std::string name;
  Color color;  // Light enough for black text
  char letter;  // Draws the part in text
};

/// A stacked bar; amounts in bytes.
struct Bar {
  std::string label;
  std::vector<double> amounts;  // [part], none negative
};

struct BarChart {
  std::string title;
  std::vector<BarPart> parts;
  std::vector<Bar> bars;
};

/// Draws one line per bar, the longest with `width` letters, each with its sum, and a legend. Rounds ends of parts to
/// whole letters.
[[nodiscard]] std::string to_text(const BarChart& chart, int width = 60);

/// Draws an SVG picture: one row per bar, a legend and an axis in bytes. Parts have tooltips.
[[nodiscard]] std::string to_svg(const BarChart& chart);

}  // namespace chimera
