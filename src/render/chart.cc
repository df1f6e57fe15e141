// to_svg() finds the ranges of all points, lets ChartFrame draw title, legend and axes into the picture's size, and
// draws the curves into the area that is left. Every color is stated twice: as an attribute, for a picture that stands
// alone, and as a class, whose color chart_style() replaces on a dark page.

#include "render/chart.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/mapped.h"
#include "render/encoding.h"

namespace chimera {
namespace {

struct Range {
  double least = std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();
  void add(double value) {
    least = std::min(least, value);
    most = std::max(most, value);
  }
  [[nodiscard]] bool empty() const { return least > most; }
};

using Point = std::pair<double, double>;

bool is_finite(const Point& point) { return std::isfinite(point.first) && std::isfinite(point.second); }

// An average would hide spikes of a loss, which are what a reader looks for.
/// Keeps the lowest and highest point of each of `columns` equal parts.
std::vector<Point> thin(const std::vector<Point>& points, std::size_t columns) {
  if (points.size() <= 2 * columns) return points;
  std::vector<Point> kept;
  const std::size_t bucket = (points.size() + columns - 1) / columns;
  for (std::size_t first = 0; first < points.size(); first += bucket) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end = points.begin() + static_cast<std::ptrdiff_t>(std::min(first + bucket, points.size()));
    auto [low, high] =
        std::minmax_element(begin, end, [](const Point& a, const Point& b) { return a.second < b.second; });
    // In the order of x, so that the curve does not run back.
    if (low > high) std::swap(low, high);
    kept.push_back(*low);
    if (low != high) kept.push_back(*high);
  }
  return kept;
}

std::vector<SeriesLook> looks_of(const std::vector<Series>& series) {
  std::vector<SeriesLook> looks;
  std::size_t next = 0;
  for (const Series& one : series) {
    // Dashes tell apart what has the same color: a series like another one, and series beyond the last color.
    if (one.like >= 0 && static_cast<std::size_t>(one.like) < looks.size()) {
      looks.push_back({looks[static_cast<std::size_t>(one.like)].color, true});
    } else {
      looks.push_back({next % kSeriesColors, next >= kSeriesColors});
      ++next;
    }
  }
  return looks;
}

// A gap (a value that is not finite) lifts the pen: the path continues with M instead of L.
void draw_curve(const Series& series, const SeriesLook& look, const ChartAxis& x, const ChartAxis& y,
                std::string& body) {
  std::string path;
  std::string marks;
  bool pen_down = false;
  const auto columns = static_cast<std::size_t>(x.last - x.first);
  for (const Point& point : thin(series.points, columns)) {
    if (!is_finite(point)) {
      pen_down = false;
      continue;
    }
    path += fmt::format("{}{:.1f} {:.1f}", pen_down ? "L" : "M", x.at(point.first), y.at(point.second));
    pen_down = true;
    // A line through a single point is invisible, so this point gets a mark.
    if (series.style == CurveStyle::Line && series.points.size() > 1) continue;
    marks += fmt::format("<g><title>{}: {:.6g}, {:.6g}</title>{}</g>\n", escape_markup(series.name), point.first,
                         point.second, mark(look.color, x.at(point.first), y.at(point.second)));
  }
  body += fmt::format(
      "<path d=\"{}\" class=\"s{}\" stroke=\"{}\" stroke-width=\"1.8\" stroke-linejoin=\"round\" fill=\"none\"{}/>\n{}",
      path, look.color, series_color(look.color), dash(look), marks);
}

/// Returns the points' x if there are few, else round numbers.
std::vector<double> x_numbers(const LineChart& chart, const Range& range) {
  std::vector<double> values;
  for (const Series& series : chart.series) {
    if (series.style != CurveStyle::Marks) return ticks(range.least, range.most, 6);
    for (const Point& point : series.points) values.push_back(point.first);
  }
  std::ranges::sort(values);
  values.erase(std::unique(values.begin(), values.end()), values.end());
  // More numbers would run into each other.
  constexpr std::size_t kMax = 9;
  return values.size() <= kMax ? values : ticks(range.least, range.most, 6);
}

// Hues of Okabe and Ito, with the most similar for color-blind readers moved apart.
constexpr std::array<const char*, kSeriesColors> kOnWhite = {"#0072b2", "#d55e00", "#009e73", "#aa4499",
                                                             "#b8860b", "#3aa0d8", "#555555"};
constexpr std::array<const char*, kSeriesColors> kOnDark = {"#4db2ef", "#ff9352", "#3fd3a8", "#e39ad8",
                                                            "#f0c040", "#a9dcf8", "#b8b8b8"};
// SVG has no layout, so widths of texts are estimated to place the legend.
constexpr double kLetter = 6.4;  // Width of a letter at 12 pixels, on average
constexpr double kLine = 18;     // Height of a line of the legend

double width_of(const std::string& words) {
  const auto continues = [](unsigned char c) { return (c & 0xC0U) == 0x80U; };
  return kLetter *
         static_cast<double>(words.size() - static_cast<std::size_t>(std::ranges::count_if(words, continues)));
}

}  // namespace

// 1, 2 and 5 times powers of ten are the steps whose multiples people read without effort.
std::vector<double> ticks(double least, double most, double count) {
  if (!(most > least)) {
    // A single value stands in the middle of the axis, which does not go below 0 for a positive value.
    const double half = least == 0 ? 1 : std::abs(least) / 2;
    return ticks(least - (least > 0 ? std::min(half, least) : half), least + half, count);
  }
  const double rough = (most - least) / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  const double part = rough / power;
  const double step = power * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
  // Without it, a limit that is a multiple of the step could get one number too many by rounding.
  constexpr double kRounding = 1e-9;
  std::vector<double> numbers;
  for (double k = std::floor(least / step + kRounding); k * step < most + step * (1 - kRounding); ++k)
    numbers.push_back(k * step);
  return numbers;
}

std::string to_svg(const LineChart& chart) {
  Range across;
  Range up;
  for (const Series& series : chart.series) {
    for (const Point& point : series.points) {
      if (!is_finite(point)) continue;
      across.add(point.first);
      up.add(point.second);
    }
  }
  const auto looks = looks_of(chart.series);
  ChartFrame frame(chart.size, chart.title);
  const PlotArea area = frame.begin(mapped(chart.series, &Series::name), looks, false, chart.x_label, chart.y_label);
  if (across.empty()) {
    frame.text((area.left + area.right) / 2, (area.top + area.bottom) / 2, "no numbers yet", "middle", "soft");
    return frame.finish();
  }
  if (chart.from_zero) up.add(0);
  const ChartAxis y = frame.value_axis(area, up.least, up.most);
  // An axis needs a length.
  if (across.least == across.most) across = {across.least - 0.5, across.most + 0.5};
  // Marks at both ends must not stick out of the area.
  const ChartAxis x{.least = across.least, .most = across.most, .first = area.left + 8, .last = area.right - 8};
  for (const double number : x_numbers(chart, across)) {
    if (number < across.least || number > across.most) continue;
    frame.text(x.at(number), area.bottom + 17, short_number(number), "middle", "soft");
  }
  for (std::size_t s = 0; s < chart.series.size(); ++s) draw_curve(chart.series[s], looks[s], x, y, frame.body);
  return frame.finish();
}

std::string chart_style() {
  // Overrides the style inside each picture, which comes later in the page.
  std::string dark =
      "main .chart .ink{fill:#e6e9ec}main .chart .soft{fill:#a3adb8}main .chart .paper{fill:#171b20}main .chart "
      ".grid{stroke:#343b43}";
  for (std::size_t s = 0; s < kSeriesColors; ++s)
    dark += fmt::format(".chart .s{0}{{stroke:{1}}}.chart .f{0}{{fill:{1}}}", s, dark_series_color(s));
  return fmt::format(
      ".chart{{width:100%;min-width:460px;max-width:1040px;height:auto}}\n@media (prefers-color-scheme: dark){{{}}}\n",
      dark);
}

std::string series_color(std::size_t index) { return kOnWhite[index % kSeriesColors]; }
std::string dark_series_color(std::size_t index) { return kOnDark[index % kSeriesColors]; }

std::string short_number(double value) {
  if (value == 0) return "0";
  const double size = std::abs(value);
  if (size >= 1e9) return fmt::format("{:.3g}G", value / 1e9);
  if (size >= 1e6) return fmt::format("{:.3g}M", value / 1e6);
  if (size >= 1e4) return fmt::format("{:.3g}k", value / 1e3);
  return fmt::format("{:.4g}", value);
}

std::string mark(std::size_t series, double x, double y) {
  const std::string kind = fmt::format("class=\"f{0}\" fill=\"{1}\"", series % kSeriesColors, series_color(series));
  switch (series % 4) {
    case 0: return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" {}/>", x, y, kind);
    case 1:
      return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"6.4\" height=\"6.4\" {}/>", x - 3.2, y - 3.2, kind);
    case 2: return fmt::format("<path d=\"M{:.1f} {:.1f}l4.2 7.4h-8.4z\" {}/>", x, y - 4.6, kind);
    default: return fmt::format("<path d=\"M{:.1f} {:.1f}l4.4 4.4l-4.4 4.4l-4.4 -4.4z\" {}/>", x, y - 4.4, kind);
  }
}

std::string dash(const SeriesLook& look) { return look.dashed ? " stroke-dasharray=\"6 4\"" : ""; }

ChartFrame::ChartFrame(ChartSize size, const std::string& title) : size_(size), title_(title) {}

void ChartFrame::text(double x, double y, const std::string& words, const char* anchor, const char* kind) {
  body += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\">{}</text>\n", x, y, anchor, kind,
                      escape_markup(words));
}

double ChartFrame::legend(const std::vector<std::string>& series, const std::vector<SeriesLook>& looks, bool as_bars,
                          double y) {
  constexpr double kSample = 28;
  constexpr double kGap = 16;
  double x = 12;
  for (std::size_t s = 0; s < series.size(); ++s) {
    const double width = kSample + width_of(series[s]) + kGap;
    // A name that is wider than the picture stays on a line of its own.
    if (x > 12 && x + width > size_.width) {
      x = 12;
      y += kLine;
    }
    const std::size_t color = looks[s].color;
    if (as_bars) {
      body += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"18\" height=\"11\" class=\"f{}\" fill=\"{}\" "
          "fill-opacity=\"{}\"/>\n",
          x, y - 9, color, series_color(color), looks[s].dashed ? 0.45 : 1.0);
    } else {
      body += fmt::format(
          "<path d=\"M{:.1f} {:.1f}h20\" class=\"s{}\" stroke=\"{}\" stroke-width=\"2\" fill=\"none\"{}/>{}\n", x,
          y - 4, color, series_color(color), dash(looks[s]), mark(color, x + 10, y - 4));
    }
    text(x + kSample, y, series[s], "start");
    x += width;
  }
  return y;
}

PlotArea ChartFrame::begin(const std::vector<std::string>& series, const std::vector<SeriesLook>& looks, bool as_bars,
                           const std::string& x_label, const std::string& y_label) {
  double y = 20;
  text(12, y, title_, "start", "ink title");
  if (series.size() > 1) y = legend(series, looks, as_bars, y + 22);
  y += 20;
  text(12, y, y_label, "start", "soft");
  const double bottom = size_.height - (x_label.empty() ? 30.0 : 44.0);
  const PlotArea area{.left = 58, .top = y + 12, .right = size_.width - 16.0, .bottom = bottom};
  if (!x_label.empty()) text((area.left + area.right) / 2, size_.height - 8, x_label, "middle", "soft");
  return area;
}

ChartAxis ChartFrame::value_axis(const PlotArea& area, double least, double most) {
  const auto numbers = ticks(least, most, 5);
  // The axis ends at round numbers on both sides, between which all values lie. Pixels count from the top.
  const ChartAxis axis{.least = numbers.front(), .most = numbers.back(), .first = area.bottom, .last = area.top};
  for (const double number : numbers) {
    const double y = axis.at(number);
    body += fmt::format("<path d=\"M{:.1f} {:.1f}H{:.1f}\" class=\"grid\" stroke=\"#d8dce0\"/>\n", area.left, y,
                        area.right);
    text(area.left - 6, y + 4, short_number(number), "end", "soft");
  }
  return axis;
}

std::string ChartFrame::finish() const {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" class=\"chart\" "
      "role=\"img\" aria-label=\"{2}\" font-family=\"system-ui, 'DejaVu Sans', Helvetica, Arial, sans-serif\" "
      "font-size=\"12\">\n"
      "<title>{2}</title>\n"
      "<style>.chart .ink{{fill:#1b1f24}}.chart .soft{{fill:#57606a}}.chart .title{{font-weight:600;font-size:14px}}"
      "</style>\n"
      "<rect width=\"100%\" height=\"100%\" class=\"paper\" fill=\"#ffffff\"/>\n{3}</svg>\n",
      size_.width, size_.height, escape_markup(title_), body);
}

}  // namespace chimera
