#include "telemetry/comparison.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "core/mapped.h"
#include "render/chart.h"
#include "render/encoding.h"
#include "render/svg.h"
#include "render/text_table.h"
#include "telemetry/html_page.h"

namespace chimera {
namespace {

using Row = std::vector<std::string>;  // name of a figure or setting, then its value per run

/// Returns the titles of the columns: the names of the runs, after a column without a title.
Row head_of(const std::vector<RunHistory>& runs) {
  Row head{""};
  for (const RunHistory& run : runs) head.push_back(run.name);
  return head;
}

std::vector<Row> figure_rows(const std::vector<RunHistory>& runs) {
  const auto all = mapped(runs, summarize_run);
  std::vector<Row> rows;
  const auto add = [&](const char* name, const auto& text_of) {
    Row row{name};
    for (const RunResults& one : all) row.push_back(text_of(one));
    rows.push_back(std::move(row));
  };
  add("steps", [](const RunResults& one) { return std::to_string(one.steps); });
  add("last loss", [](const RunResults& one) { return fmt::format("{:.4f}", one.final_loss); });
  add("best validation loss", [](const RunResults& one) {
    return one.best_validation_loss ? fmt::format("{:.4f}", *one.best_validation_loss) : "-";
  });
  add("tokens/s, median", [](const RunResults& one) { return fmt::format("{:.0f}", one.tokens_per_second); });
  add("times the first", [&](const RunResults& one) {
    const double first = all.front().tokens_per_second;
    return first > 0 ? fmt::format("{:.2f}", one.tokens_per_second / first) : "-";
  });
  add("s/step, median", [](const RunResults& one) { return fmt::format("{:.4f}", one.step_seconds); });
  add("peak memory",
      [](const RunResults& one) { return one.peak_memory_bytes > 0 ? bytes_text(one.peak_memory_bytes) : "-"; });
  add("seconds in steps", [](const RunResults& one) { return fmt::format("{:.1f}", one.total_seconds); });
  return rows;
}

std::string as_table(const std::vector<RunHistory>& runs, std::vector<Row> rows) {
  rows.insert(rows.begin(), head_of(runs));
  return text_table(rows, 1);
}

std::vector<Row> difference_rows(const std::vector<RunHistory>& runs) {
  std::vector<Row> rows;
  for (const Difference& difference : differences_of(runs)) {
    Row& row = rows.emplace_back(difference.values);
    std::ranges::replace(row, std::string(), std::string("-"));
    row.insert(row.begin(), difference.field);
  }
  return rows;
}

/// Returns why no differences are shown; may be empty.
std::string no_differences(const std::vector<RunHistory>& runs) {
  // Runs without --checkpoint have no record of their configuration.
  std::vector<std::string> without;
  for (const RunHistory& run : runs)
    if (run.configuration.empty()) without.push_back(run.name);
  if (!without.empty()) {
    return fmt::format("settings are not compared: {} {} trained without --checkpoint, which records them",
                       fmt::join(without, ", "), without.size() == 1 ? "was" : "were");
  }
  return differences_of(runs).empty() ? "the configurations are the same" : "";
}

std::vector<Series> curves_of(const RunChart& chart, const std::vector<RunHistory>& runs) {
  std::vector<Series> curves;
  for (const RunHistory& run : runs) {
    Series curve{run.name};
    std::array<Series, 3> marks = {Series{run.name + ", validation"}, Series{run.name + ", ranks lost or back"},
                                   Series{run.name + ", order changed"}};
    auto& [validation, lost, changed] = marks;
    // Sums of step times, not clock times: a pause between two attempts of a run does not count.
    double seconds = 0;
    std::optional<std::int64_t> workers;  // Of the step before
    for (const StepMetrics& step : run.steps) {
      seconds += step.step_seconds;
      const double x = chart.over == CurveOver::Steps ? static_cast<double>(step.step) : seconds;
      const auto& point = curve.points.emplace_back(x, step.*chart.field / chart.unit);
      if (chart.field == &StepMetrics::loss && step.validation_loss)
        validation.points.emplace_back(x, *step.validation_loss);
      if (step.workers != std::exchange(workers, step.workers)) lost.points.push_back(point);
      if (step.order) changed.points.push_back(point);
    }
    const int like = static_cast<int>(curves.size());
    curves.push_back(std::move(curve));
    for (Series& each : marks) {
      each.like = like;
      each.style = CurveStyle::Marks;
      if (!each.points.empty()) curves.push_back(std::move(each));
    }
  }
  return curves;
}

/// Returns one section with a line for each time that a run changed the order of its ops (changes_of_order()), or no
/// section if no run did.
std::vector<Section> order_sections(const std::vector<RunHistory>& runs) {
  std::string lines;
  for (const RunHistory& run : runs)
    for (const std::string& line : changes_of_order(run.steps))
      lines += fmt::format("<p>{}</p>\n", escape_markup(runs.size() == 1 ? line : run.name + ", " + line));
  if (lines.empty()) return {};
  return {{"Changes of the order", lines}};
}

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

std::string to_svg(const RunChart& chart, const std::vector<RunHistory>& runs) {
  return to_svg(LineChart{.title = chart.title,
                          .x_label = chart.over == CurveOver::Steps ? "step" : "seconds in steps",
                          .y_label = chart.y_label,
                          .series = curves_of(chart, runs),
                          .from_zero = chart.field != &StepMetrics::loss});
}

std::vector<Difference> differences_of(const std::vector<RunHistory>& runs) {
  std::vector<Difference> found;
  // In the order of the first run that has the field. Sorting would separate fields that belong together.
  std::vector<std::string> seen;
  for (const RunHistory& run : runs) {
    for (const auto& [field, any] : run.configuration) {
      if (std::ranges::find(seen, field) != seen.end()) continue;
      seen.push_back(field);
      Difference difference{field, {}};
      for (const RunHistory& other : runs) difference.values.push_back(value_of(other.configuration, field));
      // A field that some run lacks has an empty value there, which differs.
      const bool all_equal = std::ranges::all_of(
          difference.values, [&](const std::string& value) { return value == difference.values.front(); });
      if (!all_equal) found.push_back(std::move(difference));
    }
  }
  return found;
}

std::string comparison_text(const std::vector<RunHistory>& runs) {
  std::string text = as_table(runs, figure_rows(runs)) + "\n";
  const auto rows = difference_rows(runs);
  if (!rows.empty()) text += "what differs\n" + as_table(runs, rows);
  const std::string why = no_differences(runs);
  return why.empty() ? text : text + why + "\n";
}

std::string comparison_json(const std::vector<RunHistory>& runs) {
  using Json = nlohmann::ordered_json;
  Json json = {{"runs", Json::array()}, {"differences", Json::object()}};
  for (const RunHistory& run : runs) {
    const RunResults figures = summarize_run(run);
    Json configuration = Json::object();
    for (const auto& [field, value] : run.configuration) configuration[field] = value;
    json["runs"].push_back(
        {{"name", run.name},
         {"metrics", run.metrics},
         {"steps", figures.steps},
         {"last_loss", figures.final_loss},
         {"best_validation_loss", figures.best_validation_loss ? Json(*figures.best_validation_loss) : Json()},
         {"tokens_per_second", figures.tokens_per_second},
         {"step_seconds", figures.step_seconds},
         {"peak_memory_bytes", figures.peak_memory_bytes},
         {"total_seconds", figures.total_seconds},
         {"configuration", std::move(configuration)}});
  }
  for (const Difference& difference : differences_of(runs)) json["differences"][difference.field] = difference.values;
  return json_report(json);
}

std::string comparison_svg(const std::vector<RunHistory>& runs) { return to_svg(kLossOverSteps, runs); }

std::string comparison_page(const std::vector<RunHistory>& runs) {
  std::vector<Section> sections = {{"Results", html_table(head_of(runs), figure_rows(runs))}};
  const auto rows = difference_rows(runs);
  const std::string why = no_differences(runs);
  sections.push_back({"What differs", (rows.empty() ? "" : html_table(head_of(runs), rows)) +
                                          (why.empty() ? "" : fmt::format("<p>{}.</p>", escape_markup(why)))});
  sections.push_back({"Loss", side_by_side({to_svg(kLossOverSteps, runs), to_svg(kLossOverTime, runs)})});
  const RunChart time{"Time of a step", "seconds", &StepMetrics::step_seconds};
  sections.push_back({"Throughput", side_by_side({to_svg(kTokensPerSecond, runs), to_svg(time, runs)})});
  std::ranges::move(order_sections(runs), std::back_inserter(sections));
  return html_page("Runs side by side", fmt::format("{} runs", runs.size()), sections);
}

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
