#pragma once
// Charts as SVG pictures: curves over a number, bars by name. A picture stands by itself, for a paper, with dark ink on
// white; in a page, chart_style() gives it the page's colours, dark mode included. Series differ in colour (Okabe and
// Ito), dash and mark, so that no reader depends on hue.

#include <optional>
#include <string>
#include <utility>
#include <vector>

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

}  // namespace chimera
