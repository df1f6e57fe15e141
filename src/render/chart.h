#pragma once
// Line charts as SVG pictures, for pages about training runs and sweeps. to_svg() draws a LineChart as a standalone
// picture, dark on white. In an HTML page, the style sheet of chart_style() replaces its colors in dark mode. Curves
// differ in color, dash and mark, so that readers need not distinguish colors. ChartFrame draws the parts that all
// charts share (title, legend, axes); benchmarks/paper/grouped_bars.h uses it for bar charts.

#include <string>
#include <utility>
#include <vector>

namespace chimera {

/// Size in pixels.
struct ChartSize {
  int width = 640;
  int height = 340;
};

enum class CurveStyle : std::uint8_t {
  Line,   ///< Line without marks, for many points
  Marks,  ///< A mark at each point, for few
};

/// A curve of (x, y) points. Points with infinite or NaN values are gaps.
struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points = {};  ///< (x, y), x ascending
  CurveStyle style = CurveStyle::Line;
  int like = -1;  ///< Index of another series whose color and mark this one gets, but dashed; -1: a color of its own
};

/// Curves with common axes.
struct LineChart {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<Series> series;
  bool from_zero = false;  ///< y axis includes 0
  ChartSize size = {};
};

/// Returns the numbers to write on an axis: at most `count` + 2 numbers that cover `least` to `most`, in steps of 1, 2
/// or 5 times a power of ten. If both are equal, covers a range around them.
[[nodiscard]] std::vector<double> ticks(double least, double most, double count);

/// Returns the chart as an SVG picture. If a curve has more than two points per pixel column, draws only the lowest and
/// the highest of neighboring points, so that peaks remain.
[[nodiscard]] std::string to_svg(const LineChart& chart);

/// Returns a style sheet for the charts in the element `main` of an HTML page: dark mode, full width, legible minimum
/// size.
[[nodiscard]] std::string chart_style();

/// How a series is drawn.
struct SeriesLook {
  std::size_t color = 0;  ///< Index for series_color()
  bool dashed = false;    ///< Bars are paler instead
};

/// Returns a color for a white background, such as `#0072b2`. Any index; the colors repeat.
[[nodiscard]] std::string series_color(std::size_t index);
/// Returns the color for a dark background.
[[nodiscard]] std::string dark_series_color(std::size_t index);
/// Number of different colors.
inline constexpr std::size_t kSeriesColors = 7;

/// Maps values `least` to `most` to pixels `first` to `last`. Requires that `least` and `most` differ.
struct ChartAxis {
  double least = 0;
  double most = 1;
  double first = 0;
  double last = 1;
  [[nodiscard]] double at(double value) const { return first + (value - least) / (most - least) * (last - first); }
};

/// Area inside the axes, in pixels.
struct PlotArea {
  double left = 0;
  double top = 0;
  double right = 0;
  double bottom = 0;
};

/// A chart in progress: call begin() once, then append elements to `body`, then call finish().
class ChartFrame {
 public:
  ChartFrame(ChartSize size, const std::string& title);

  /// Draws title, legend (for several series) and axis labels. `series` are the names, `looks` has an element for each,
  /// and `as_bars` says whether the legend shows bars or lines. Returns the area that remains for the data.
  PlotArea begin(const std::vector<std::string>& series, const std::vector<SeriesLook>& looks, bool as_bars,
                 const std::string& x_label, const std::string& y_label);
  /// Draws and returns the y axis, with grid lines and numbers. It covers `least` to `most`, and ends at round numbers.
  ChartAxis value_axis(const PlotArea& area, double least, double most);
  /// Draws text. `anchor` is start, middle or end; `kind` is the class of its color: ink, or soft for gray.
  void text(double x, double y, const std::string& words, const char* anchor = "middle", const char* kind = "ink");
  /// Returns the SVG picture.
  [[nodiscard]] std::string finish() const;

  std::string body;  ///< SVG elements so far

 private:
  double legend(const std::vector<std::string>& series, const std::vector<SeriesLook>& looks, bool as_bars, double y);

  ChartSize size_;
  std::string title_;
};

/// Formats a number with at most four digits; from 10,000 on with three, and k, M or G.
[[nodiscard]] std::string short_number(double value);

/// Returns the SVG element of the mark of series number `series` at (x, y): a circle, square, triangle or diamond.
[[nodiscard]] std::string mark(std::size_t series, double x, double y);
/// Returns the SVG attribute for dashes with a leading blank; empty for a solid line.
[[nodiscard]] std::string dash(const SeriesLook& look);

}  // namespace chimera
