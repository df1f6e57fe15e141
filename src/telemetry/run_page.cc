#include "telemetry/run_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "render/encoding.h"
#include "render/svg.h"
#include "telemetry/comparison.h"

namespace chimera {
namespace {

std::string figures_list(const RunHistory& run) {
  const RunResults figures = summarize_run(run);
  std::string text = "<dl class=\"figures\">\n";
  const auto add = [&](const char* name, const std::string& value) {
    text += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", name, escape_markup(value));
  };
  add("steps", std::to_string(figures.steps));
  add("last loss", fmt::format("{:.4f}", figures.final_loss));
  if (figures.best_validation_loss) add("best validation loss", fmt::format("{:.4f}", *figures.best_validation_loss));
  add("tokens a second", fmt::format("{:.0f}", figures.tokens_per_second));
  add("seconds a step", fmt::format("{:.3f}", figures.step_seconds));
  if (const auto mfu = run.steps.back().utilization) add("MFU", mfu_text(*mfu));
  if (figures.peak_memory_bytes > 0) add("largest process", bytes_text(figures.peak_memory_bytes));
  return text + "</dl>\n";
}

constexpr RunChart kMemory{.title = "Memory of the largest process so far",
                           .y_label = "MiB resident",
                           .field = &StepMetrics::peak_memory_bytes,
                           .unit = 1 << 20};
constexpr RunChart kGradientNorm{"Gradient norm", "before clipping", &StepMetrics::gradient_norm};
constexpr RunChart kLearningRate{"Learning rate", "", &StepMetrics::learning_rate};

std::string forecast_table(const RunPage& report) {
  std::vector<std::vector<std::string>> rows;
  for (const PageForecast& forecast : report.forecasts) {
    const double error = forecast.measured != 0 ? 100 * (forecast.predicted / forecast.measured - 1) : 0;
    rows.push_back({fmt::format("{}, {}", forecast.name, forecast.unit), fmt::format("{:.4g}", forecast.predicted),
                    fmt::format("{:.4g}", forecast.measured), fmt::format("{:+.1f} %", error)});
  }
  return html_table({"", "predicted", "measured", "error"}, rows) +
         fmt::format("<p>{}</p>\n", escape_markup(report.forecast_note));
}

/// The pictures have one time axis and scroll together, so that the eye compares measured and simulated ops.
std::string timeline_pictures(const std::vector<Panel>& panels) {
  constexpr double kPageWidth = 1240;  // Fits html_page.h without scrolling
  const SvgAxis axis = common_axis(panels, kPageWidth);
  std::string text;
  std::string pictures;
  for (const Panel& panel : panels) {
    const std::int64_t ops = num_ops(panel.schedule);
    // A page has several pictures and is read on a screen.
    if (ops > kMaxSvgOps / 20) {
      text += fmt::format("<p>{}: {} ops are too many for this page; `--timeline` draws them.</p>\n",
                          escape_markup(panel.title), ops);
    } else {
      pictures += to_svg(panel, axis);
    }
  }
  return text + (pictures.empty() ? "" : "<div class=\"picture\">\n" + pictures + "</div>\n");
}

std::string configuration_table(const Configuration& configuration) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& [field, value] : configuration) rows.push_back({field, value});
  return html_table({"field", "value"}, rows, /*numbers=*/false);
}

}  // namespace

std::string to_page(const RunPage& report) {
  const RunHistory& run = report.run;
  std::vector<Section> sections = {{"At a glance", figures_list(run)}};
  const auto charts = [&](const RunChart& left, const RunChart& right) {
    return side_by_side({to_svg(left, {run}), to_svg(right, {run})});
  };
  sections.push_back({"Loss", charts(kLossOverSteps, kLossOverTime)});
  sections.push_back({"Throughput and memory", charts(kTokensPerSecond, kMemory)});
  std::ranges::move(order_sections({run}), std::back_inserter(sections));
  if (!report.forecasts.empty()) sections.push_back({"Predicted and measured", forecast_table(report)});
  if (!report.timelines.empty())
    sections.push_back({"One step, worker by worker", timeline_pictures(report.timelines)});
  sections.push_back({"Optimization", charts(kGradientNorm, kLearningRate)});
  if (!run.configuration.empty()) sections.push_back({"Configuration", configuration_table(run.configuration)});
  return html_page(run.name, report.subtitle, sections);
}

}  // namespace chimera
