// Stacked bars, as letters (to_text()) and as a picture (BarPicture). A picture is drawn from the top down: title,
// axis, one row per bar, legend. SVG has no layout, so the room for texts is estimated from their number of letters.

#include "render/bars.h"

#include <fmt/ranges.h>
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/mapped.h"
#include "render/encoding.h"
#include "render/panel.h"
#include "render/svg_text.h"

namespace chimera {
namespace {

// Lengths of pictures are in pixels.
constexpr double kChartTop = 48;  // Title and axis
constexpr double kBarsWidth = 640;
constexpr double kSumWidth = 84;
constexpr double kBarHeight = 20;
constexpr double kBarGap = 5;
constexpr double kBarLetterWidth = 6.8;  // Upper bound
constexpr double kTitleLetterWidth = 9;
constexpr double kMargin = 12;

double sum_of(const Bar& bar) { return std::accumulate(bar.amounts.begin(), bar.amounts.end(), 0.0); }

double longest(const BarChart& chart) {
  double most = 0;
  for (const Bar& bar : chart.bars) most = std::max(most, sum_of(bar));
  return most;
}

std::size_t widest_label(const BarChart& chart) {
  std::size_t most = 0;
  for (const Bar& bar : chart.bars) most = std::max(most, bar.label.size());
  return most;
}

class BarPicture {
 public:
  explicit BarPicture(const BarChart& chart) : chart_(chart) {}

  std::string draw() {
    const double title_width = 2 * kMargin + static_cast<double>(chart_.title.size()) * kTitleLetterWidth;
    const double width = std::max(left_ + kBarsWidth + kSumWidth, title_width);
    const double height = kChartTop + static_cast<double>(chart_.bars.size()) * (kBarHeight + kBarGap) + 34;
    out_.begin(width, height, chart_.title);
    out_.put(
        ".label {{ text-anchor: end; fill: #555 }}\n"
        ".tick {{ text-anchor: middle; fill: #555 }}\n.rule {{ stroke: #ddd; fill: none }}\n</style>\n"
        "<rect fill=\"#fff\" width=\"{}\" height=\"{}\"/>\n<text class=\"title\" x=\"{}\" y=\"18\">{}</text>\n",
        pixels(width), pixels(height), pixels(kMargin), escape_markup(chart_.title));
    axis(height - 32);
    for (std::size_t i = 0; i < chart_.bars.size(); ++i)
      row(chart_.bars[i], kChartTop + static_cast<double>(i) * (kBarHeight + kBarGap));
    legend(height - 12);
    return out_.end();
  }

 private:
  /// Steps are powers of two, about 100 pixels each.
  void axis(double bottom) {
    if (!(longest_ > 0)) return;
    const double step = std::exp2(std::ceil(std::log2(100 / scale_)));
    for (int i = 0; i * step <= longest_; ++i)
      out_.put("<text class=\"tick\" x=\"{0}\" y=\"36\">{1}</text><path class=\"rule\" d=\"M{0} 40V{2}\"/>\n",
               pixels(left_ + i * step * scale_), bytes_text(i * step), pixels(bottom));
  }

  void row(const Bar& bar, double top) {
    out_.put("<text class=\"label\" x=\"{}\" y=\"{}\">{}</text>\n", pixels(left_ - 8), pixels(top + 14),
             escape_markup(bar.label));
    double before = 0;
    for (std::size_t p = 0; p < chart_.parts.size(); ++p) {
      // A part without bytes has no area for a tooltip.
      if (!(bar.amounts[p] > 0)) continue;
      out_.put("<rect fill=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"><title>{}, {}: {}</title></rect>\n",
               to_hex(chart_.parts[p].color), pixels(left_ + before * scale_), pixels(top),
               pixels(bar.amounts[p] * scale_), pixels(kBarHeight), escape_markup(bar.label),
               escape_markup(chart_.parts[p].name), bytes_text(bar.amounts[p]));
      before += bar.amounts[p];
    }
    out_.put("<text x=\"{}\" y=\"{}\">{}</text>\n", pixels(left_ + before * scale_ + 6), pixels(top + 14),
             bytes_text(before));
  }

  void legend(double baseline) {
    double x = left_;
    for (const BarPart& part : chart_.parts) {
      out_.put("<rect fill=\"{}\" x=\"{}\" y=\"{}\" width=\"12\" height=\"12\"/><text x=\"{}\" y=\"{}\">{}</text>\n",
               to_hex(part.color), pixels(x), pixels(baseline - 10), pixels(x + 16), pixels(baseline),
               escape_markup(part.name));
      x += 32 + static_cast<double>(part.name.size()) * kBarLetterWidth;
    }
  }

  const BarChart& chart_;
  double left_ = 2 * kMargin + static_cast<double>(widest_label(chart_)) * kBarLetterWidth;
  double longest_ = longest(chart_);
  double scale_ = longest_ > 0 ? kBarsWidth / longest_ : 0;
  SvgText out_;
};

}  // namespace

// Ends are rounded, not lengths, so that rounding does not add up over the parts of a bar.
std::string to_text(const BarChart& chart, int width) {
  const double most = longest(chart);
  const std::size_t label_width = widest_label(chart);
  std::string text = chart.title + "\n";
  for (const Bar& bar : chart.bars) {
    std::string letters;
    double before = 0;
    for (std::size_t p = 0; p < chart.parts.size(); ++p) {
      before += bar.amounts[p];
      const double end = most > 0 ? std::round(before / most * width) : 0;
      letters.resize(static_cast<std::size_t>(end), chart.parts[p].letter);
    }
    text += fmt::format("{:<{}} |{} {}\n", bar.label, label_width, letters, bytes_text(before));
  }
  const auto legend =
      mapped(chart.parts, [](const BarPart& part) { return fmt::format("{} {}", part.letter, part.name); });
  return text + fmt::format("{:<{}}  {}\n", "", label_width, fmt::join(legend, ", "));
}

std::string to_svg(const BarChart& chart) { return BarPicture(chart).draw(); }

}  // namespace chimera
