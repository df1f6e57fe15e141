#include "render/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "render/chart_frame.h"
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

/// At most two points for each of `columns` equal parts of the x axis: the lowest and the highest.
std::vector<Point> thinned(const std::vector<Point>& points, std::size_t columns) {
  if (points.size() <= 2 * columns) return points;
  std::vector<Point> kept;
  const std::size_t bucket = (points.size() + columns - 1) / columns;
  for (std::size_t first = 0; first < points.size(); first += bucket) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end = points.begin() + static_cast<std::ptrdiff_t>(std::min(first + bucket, points.size()));
    auto [low, high] =
        std::minmax_element(begin, end, [](const Point& a, const Point& b) { return a.second < b.second; });
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
    if (one.like >= 0 && static_cast<std::size_t>(one.like) < looks.size()) {
      looks.push_back({looks[static_cast<std::size_t>(one.like)].color, true});
    } else {
      looks.push_back({next % kSeriesColors, next >= kSeriesColors});
      ++next;
    }
  }
  return looks;
}

void draw_curve(const Series& series, const SeriesLook& look, const Axis& x, const Axis& y, std::string& body) {
  std::string path;
  std::string marks;
  bool pen_down = false;
  const auto columns = static_cast<std::size_t>(x.last - x.first);
  for (const Point& point : thinned(series.points, columns)) {
    if (!is_finite(point)) {
      pen_down = false;
      continue;
    }
    path += fmt::format("{}{:.1f} {:.1f}", pen_down ? "L" : "M", x.at(point.first), y.at(point.second));
    pen_down = true;
    if (series.style == CurveStyle::Line && series.points.size() > 1) continue;
    marks += fmt::format("<g><title>{}: {:.6g}, {:.6g}</title>{}</g>\n", escaped_markup(series.name), point.first,
                         point.second, mark(look.color, x.at(point.first), y.at(point.second)));
  }
  body += fmt::format(
      "<path d=\"{}\" class=\"s{}\" stroke=\"{}\" stroke-width=\"1.8\" stroke-linejoin=\"round\" fill=\"none\"{}/>\n{}",
      path, look.color, series_color(look.color), dash(look), marks);
}

/// Numbers below the x axis: those of the points where they are few, else round ones.
std::vector<double> x_numbers(const LineChart& chart, const Range& range) {
  std::vector<double> values;
  for (const Series& series : chart.series) {
    if (series.style != CurveStyle::Marks) return ticks(range.least, range.most, 6);
    for (const Point& point : series.points) values.push_back(point.first);
  }
  std::ranges::sort(values);
  values.erase(std::unique(values.begin(), values.end()), values.end());
  constexpr std::size_t kMost = 9;
  return values.size() <= kMost ? values : ticks(range.least, range.most, 6);
}

}  // namespace

std::vector<double> ticks(double least, double most, int count) {
  if (!(most > least)) {
    const double half = least == 0 ? 1 : std::abs(least) / 2;
    return ticks(least - (least > 0 ? std::min(half, least) : half), least + half, count);
  }
  const double rough = (most - least) / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  const double part = rough / power;
  const double step = power * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
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
  std::vector<std::string> names;
  for (const Series& series : chart.series) names.push_back(series.name);
  const auto looks = looks_of(chart.series);
  ChartFrame frame(chart.size, chart.title);
  const PlotArea area = frame.begin(names, looks, false, chart.x_label, chart.y_label);
  if (across.empty()) {
    frame.text((area.left + area.right) / 2, (area.top + area.bottom) / 2, "no numbers yet", "middle", "soft");
    return frame.finish();
  }
  if (chart.from_zero) up.add(0);
  const Axis y = frame.value_axis(area, up.least, up.most);
  if (across.least == across.most) across = {across.least - 0.5, across.most + 0.5};
  const Axis x{.least = across.least, .most = across.most, .first = area.left + 8, .last = area.right - 8};
  for (const double number : x_numbers(chart, across)) {
    if (number < across.least || number > across.most) continue;
    frame.text(x.at(number), area.bottom + 17, short_number(number), "middle", "soft");
  }
  for (std::size_t s = 0; s < chart.series.size(); ++s) draw_curve(chart.series[s], looks[s], x, y, frame.body);
  return frame.finish();
}

std::string to_svg(const GroupedBars& chart) {
  Range up;
  up.add(0);
  for (const auto& group : chart.groups) {
    for (const auto& value : group.values) {
      if (value && std::isfinite(*value)) up.add(*value);
    }
  }
  std::vector<SeriesLook> looks;
  for (std::size_t s = 0; s < chart.series.size(); ++s) looks.push_back({s % kSeriesColors, s >= kSeriesColors});
  ChartFrame frame(chart.size, chart.title);
  const PlotArea area = frame.begin(chart.series, looks, true, "", chart.y_label);
  const Axis y = frame.value_axis(area, up.least, up.most > 0 ? up.most * 1.02 : 1);
  const double room = (area.right - area.left) / static_cast<double>(std::max<std::size_t>(chart.groups.size(), 1));
  const double width = 0.78 * room / static_cast<double>(std::max<std::size_t>(chart.series.size(), 1));
  const bool has_labels = width >= 20;
  for (std::size_t g = 0; g < chart.groups.size(); ++g) {
    const auto& group = chart.groups[g];
    const double left = area.left + room * (static_cast<double>(g) + 0.11);
    frame.text(left + 0.39 * room, area.bottom + 17, group.name, "middle", "soft");
    for (std::size_t s = 0; s < group.values.size(); ++s) {
      const double x = left + width * static_cast<double>(s);
      const auto& value = group.values[s];
      const double top = value ? y.at(*value) : area.bottom;
      if (value) {
        frame.body += fmt::format(
            "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" class=\"f{}\" fill=\"{}\"><title>{} "
            "{}: "
            "{:.6g}</title></rect>\n",
            x, top, width * 0.92, area.bottom - top, looks[s].color, series_color(looks[s].color),
            escaped_markup(group.name), escaped_markup(s < chart.series.size() ? chart.series[s] : ""), *value);
      }
      if (has_labels || !value) {
        frame.body += fmt::format("<g font-size=\"{}\">", width >= 34 ? 11 : 9);
        frame.text(x + width * 0.46, top - 4, value ? short_number(*value) : chart.absent, "middle", "ink");
        frame.body += "</g>";
      }
    }
  }
  return frame.finish();
}

std::string chart_style() {
  // More specific than the style sheet inside each picture, which comes later in the page.
  std::string dark =
      "main .chart .ink{fill:#e6e9ec}main .chart .soft{fill:#a3adb8}main .chart .paper{fill:#171b20}main .chart "
      ".grid{stroke:#343b43}";
  for (std::size_t s = 0; s < kSeriesColors; ++s) {
    dark += fmt::format(".chart .s{0}{{stroke:{1}}}.chart .f{0}{{fill:{1}}}", s, dark_series_color(s));
  }
  return fmt::format(
      ".chart{{width:100%;min-width:460px;max-width:1040px;height:auto}}\n@media (prefers-color-scheme: dark){{{}}}\n",
      dark);
}

}  // namespace chimera
