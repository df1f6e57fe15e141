#include "paper/grouped_bars.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "render/encoding.h"

namespace chimera {

std::string to_svg(const GroupedBars& chart) {
  double least = 0;
  double most = 0;
  for (const auto& group : chart.groups) {
    for (const auto& value : group.values) {
      if (!value || !std::isfinite(*value)) continue;
      least = std::min(least, *value);
      most = std::max(most, *value);
    }
  }
  std::vector<SeriesLook> looks;
  for (std::size_t s = 0; s < chart.series.size(); ++s) looks.push_back({s % kSeriesColors, s >= kSeriesColors});
  ChartFrame frame(chart.size, chart.title);
  const PlotArea area = frame.begin(chart.series, looks, true, "", chart.y_label);
  const ChartAxis y = frame.value_axis(area, least, most > 0 ? most * 1.02 : 1);
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
            escape_markup(group.name), escape_markup(s < chart.series.size() ? chart.series[s] : ""), *value);
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

}  // namespace chimera
