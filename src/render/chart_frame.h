#pragma once
// What both kinds of chart share: the frame with its axes, title and legend.

#include <string>
#include <vector>

#include "render/chart.h"

namespace chimera {

/// How a series looks: its place in the palette, and whether it is dashed (paler, for bars).
struct SeriesLook {
  std::size_t color = 0;
  bool dashed = false;
};

/// The colour of a series on white paper, `#0072b2`.
[[nodiscard]] std::string series_color(std::size_t index);
/// The same on dark paper.
[[nodiscard]] std::string dark_series_color(std::size_t index);
inline constexpr std::size_t kSeriesColors = 7;

/// Values from `least` to `most` of an axis, on pixels from `first` to `last`.
struct Axis {
  double least = 0;
  double most = 1;
  double first = 0;
  double last = 1;
  [[nodiscard]] double at(double value) const { return first + (value - least) / (most - least) * (last - first); }
};

/// The area inside the axes, in pixels.
struct PlotArea {
  double left = 0;
  double top = 0;
  double right = 0;
  double bottom = 0;
};

/// A chart under construction: begin() says where the plot goes, then elements are added to `body`.
class ChartFrame {
 public:
  ChartFrame(ChartSize size, const std::string& title);

  /// Lays out title, legend (none for a single series), and the axis labels. Returns the area that is left.
  PlotArea begin(const std::vector<std::string>& series, const std::vector<SeriesLook>& looks, bool as_bars,
                 const std::string& x_label, const std::string& y_label);
  /// The y axis' range and pixels, with its grid lines and numbers drawn.
  Axis value_axis(const PlotArea& area, double least, double most);
  /// A text: `anchor` is start, middle or end.
  void text(double x, double y, const std::string& words, const char* anchor = "middle", const char* kind = "ink");
  [[nodiscard]] std::string finish() const;

  std::string body;

 private:
  double legend(const std::vector<std::string>& series, const std::vector<SeriesLook>& looks, bool as_bars, double y);

  ChartSize size_;
  std::string title_;
};

/// A number for an axis or a bar: four digits, no trailing zeros, thousands as k.
[[nodiscard]] std::string short_number(double value);

/// A mark at a point: circle, square, triangle, diamond, by the series' number.
[[nodiscard]] std::string mark(std::size_t series, double x, double y);
/// The dash of a series' line as an attribute, with a leading blank; empty where it is whole.
[[nodiscard]] std::string dash(const SeriesLook& look);

}  // namespace chimera
