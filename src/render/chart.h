#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

// Charts as SVG pictures: curves over a number, bars by name. A picture stands by itself, for a paper, with dark ink on
// white; in a page, chart_style() gives it the page's colours, dark mode included. Series differ in colour (Okabe and
// Ito), dash and mark, so that no reader depends on hue.

// What both kinds of chart share: the frame with its axes, title and legend.

namespace chimera {

/// Size of a chart, in pixels of the picture.
struct ChartSize {
  int width = 640;
  int height = 340;
};

/// How a curve is drawn.
enum class CurveStyle : std::uint8_t {
  Line,   ///< a line alone, for many points
  Marks,  ///< a line with a mark at each point, for few
};

/// A curve. Points whose numbers are not finite are gaps.
struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points = {};  ///< x ascending
  CurveStyle style = CurveStyle::Line;
  int like = -1;  ///< the number of the series whose colour it shares, dashed; -1: a colour of its own
};

struct LineChart {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<Series> series;
  bool from_zero = false;  ///< whether the y axis begins at 0
  ChartSize size = {};
};

/// Bars by group, one for each series; a value that is none has no bar, and the word `absent` in its place.
struct GroupedBars {
  struct Group {
    std::string name;
    std::vector<std::optional<double>> values;  ///< [series]
  };
  std::string title;
  std::string y_label;
  std::vector<std::string> series;
  std::vector<Group> groups;
  std::string absent = "–";
  ChartSize size = {};
};

/// Numbers from `least` to `most` or a little beyond, at most `count` + 2 of them, in steps of 1, 2 or 5 times a power
/// of ten.
[[nodiscard]] std::vector<double> ticks(double least, double most, int count);

/// The picture. Curves of many points are thinned to what a pixel can show, peaks kept. A chart without a finite point
/// says so.
[[nodiscard]] std::string to_svg(const LineChart& chart);
/// The picture; every bar carries its value.
[[nodiscard]] std::string to_svg(const GroupedBars& chart);

/// A style sheet for pages whose `main` holds charts: ink, grid and series on dark paper, as wide as there is room, and
/// never too small to read.
[[nodiscard]] std::string chart_style();

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
