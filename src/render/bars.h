#pragma once
// Charts with one stacked bar per worker or stage, which show what its memory is used for (`chimera plan --explain`,
// `chimera model`): as text and as an SVG picture. In text, a bar is a row of letters such as `wwwwggaaa`, a letter for
// each kind of memory.

#include <vector>

#include "render/colors.h"

namespace chimera {

/// A kind of memory, such as weights. Every bar has a segment for it.
struct BarPart {
  std::string name;
  Color color;  // Light enough for black text
  char letter;  // Fills the segment in text
};

/// A stacked bar; amounts in bytes.
struct Bar {
  std::string label;
  std::vector<double> amounts;  // [BarChart::parts], none negative
};

/// Bars with a common scale.
struct BarChart {
  std::string title;
  std::vector<BarPart> parts;
  std::vector<Bar> bars;
};

/// Draws one line per bar, with the sum of its bytes, and a legend. The longest bar has `width` letters. Boundaries
/// between segments are rounded to whole letters.
[[nodiscard]] std::string to_text(const BarChart& chart, int width = 60);

/// Draws an SVG picture: one row per bar, a legend and an axis in bytes. Segments have tooltips.
[[nodiscard]] std::string to_svg(const BarChart& chart);

}  // namespace chimera
