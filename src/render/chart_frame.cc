#include "render/chart_frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "render/encoding.h"

namespace chimera {
namespace {

// Okabe and Ito's hues, those apart that differ least for the eyes that see fewest.
constexpr std::array<const char*, kSeriesColors> kOnWhite = {"#0072b2", "#d55e00", "#009e73", "#aa4499",
                                                             "#b8860b", "#3aa0d8", "#555555"};
constexpr std::array<const char*, kSeriesColors> kOnDark = {"#4db2ef", "#ff9352", "#3fd3a8", "#e39ad8",
                                                            "#f0c040", "#a9dcf8", "#b8b8b8"};
constexpr double kLetter = 6.4;  // width of a letter at 12 pixels, on average
constexpr double kLine = 18;     // height of a line of the legend

double width_of(const std::string& words) {
  const auto continues = [](unsigned char c) { return (c & 0xC0U) == 0x80U; };
  return kLetter *
         static_cast<double>(words.size() - static_cast<std::size_t>(std::ranges::count_if(words, continues)));
}

}  // namespace

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
                      escaped_markup(words));
}

double ChartFrame::legend(const std::vector<std::string>& series, const std::vector<SeriesLook>& looks, bool as_bars,
                          double y) {
  constexpr double kSample = 28;
  constexpr double kGap = 16;
  double x = 12;
  for (std::size_t s = 0; s < series.size(); ++s) {
    const double width = kSample + width_of(series[s]) + kGap;
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

Axis ChartFrame::value_axis(const PlotArea& area, double least, double most) {
  const auto numbers = ticks(least, most, 5);
  const Axis axis{.least = numbers.front(), .most = numbers.back(), .first = area.bottom, .last = area.top};
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
      size_.width, size_.height, escaped_markup(title_), body);
}

}  // namespace chimera
