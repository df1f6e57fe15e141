#include "telemetry/comparison.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/json.h"
#include "render/encoding.h"
#include "render/panel.h"
#include "render/text_table.h"

namespace chimera {
namespace {

using Row = std::vector<std::string>;  // name of a figure or setting, then its value per run

std::vector<RunResults> all_figures(const std::vector<RunHistory>& runs) {
  std::vector<RunResults> figures;
  for (const RunHistory& run : runs) figures.push_back(summarize_run(run));
  return figures;
}

std::vector<std::string> names_of(const std::vector<RunHistory>& runs) {
  std::vector<std::string> names;
  for (const RunHistory& run : runs) names.push_back(run.name);
  return names;
}

std::string memory_text(double bytes) { return bytes > 0 ? bytes_text(bytes) : "-"; }

std::vector<Row> figure_rows(const std::vector<RunResults>& all) {
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
  add("peak memory", [](const RunResults& one) { return memory_text(one.peak_memory_bytes); });
  add("seconds in steps", [](const RunResults& one) { return fmt::format("{:.1f}", one.total_seconds); });
  return rows;
}

std::string as_table(const std::vector<RunHistory>& runs, std::vector<Row> rows) {
  Row head = names_of(runs);
  head.insert(head.begin(), "");
  rows.insert(rows.begin(), std::move(head));
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
  for (const RunHistory& run : runs) {
    if (run.configuration.empty()) without.push_back(run.name);
  }
  if (!without.empty()) {
    return fmt::format("settings are not compared: {} {} trained without --checkpoint, which records them",
                       fmt::join(without, ", "), without.size() == 1 ? "was" : "were");
  }
  return differences_of(runs).empty() ? "the configurations are the same" : "";
}

std::string rows_as_html(const std::vector<RunHistory>& runs, const std::vector<Row>& rows) {
  Row head = names_of(runs);
  head.insert(head.begin(), "");
  std::vector<std::vector<TableCell>> cells;
  for (const Row& row : rows) {
    auto& line = cells.emplace_back();
    for (const std::string& text : row) line.push_back({text, !line.empty()});
  }
  return html_table(head, cells);
}

/// Appends a curve, and marks of the same color that have points.
void add_curve(std::vector<Series>& curves, Series curve, std::vector<Series> marks) {
  const int like = static_cast<int>(curves.size());
  curves.push_back(std::move(curve));
  for (Series& each : marks) {
    if (each.points.empty()) continue;
    each.like = like;
    each.style = CurveStyle::Marks;
    curves.push_back(std::move(each));
  }
}

/// Returns series for note_changes().
std::vector<Series> marks_of_changes(const RunHistory& run) {
  return {{run.name + ", ranks lost or back"}, {run.name + ", order changed"}};
}

/// Marks a step if another number of ranks, or another order, ran the step before.
void note_changes(const RunHistory& run, const StepMetrics& step, const Series& curve, std::vector<Series>& marks) {
  if (step.workers != (&step == &run.steps.front() ? std::nullopt : (&step - 1)->workers))
    marks[0].points.push_back(curve.points.back());
  if (step.order) marks[1].points.push_back(curve.points.back());
}

/// Returns a curve per run over its steps, with a mark where ranks are lost or the order changes.
std::vector<Series> step_curves(const std::vector<RunHistory>& runs, double StepMetrics::*field) {
  std::vector<Series> curves;
  for (const RunHistory& run : runs) {
    Series curve{run.name};
    std::vector<Series> marks = marks_of_changes(run);
    for (const StepMetrics& step : run.steps) {
      curve.points.emplace_back(step.step, step.*field);
      note_changes(run, step, curve, marks);
    }
    add_curve(curves, std::move(curve), std::move(marks));
  }
  return curves;
}

/// Returns the training loss of each run, with marks for its validation loss and for changes.
std::vector<Series> loss_curves(const std::vector<RunHistory>& runs, CurveOver over) {
  std::vector<Series> curves;
  for (const RunHistory& run : runs) {
    Series training{run.name};
    Series validation{run.name + ", validation"};
    // Sums of step times, not clock times: a pause between two attempts of a run does not count.
    std::vector<Series> marks = marks_of_changes(run);
    double seconds = 0;
    for (const StepMetrics& step : run.steps) {
      seconds += step.step_seconds;
      const double x = over == CurveOver::Steps ? static_cast<double>(step.step) : seconds;
      training.points.emplace_back(x, step.loss);
      if (step.validation_loss) validation.points.emplace_back(x, *step.validation_loss);
      note_changes(run, step, training, marks);
    }
    marks.insert(marks.begin(), std::move(validation));
    add_curve(curves, std::move(training), std::move(marks));
  }
  return curves;
}

}  // namespace

std::vector<Section> order_sections(const std::vector<RunHistory>& runs) {
  std::string lines;
  for (const RunHistory& run : runs) {
    for (const std::string& line : changes_of_order(run))
      lines += fmt::format("<p>{}</p>\n", escape_markup(runs.size() == 1 ? line : run.name + ", " + line));
  }
  if (lines.empty()) return {};
  return {{"Changes of the order", lines}};
}

LineChart speed_chart(const std::vector<RunHistory>& runs) {
  return {.title = "Tokens a second",
          .x_label = "step",
          .y_label = "tokens/s",
          .series = step_curves(runs, &StepMetrics::tokens_per_second),
          .from_zero = true};
}

LineChart loss_chart(const std::vector<RunHistory>& runs, CurveOver over) {
  return {.title = over == CurveOver::Steps ? "Loss over steps" : "Loss over time",
          .x_label = over == CurveOver::Steps ? "step" : "seconds in steps",
          .y_label = "loss, nats a token; dashed: validation",
          .series = loss_curves(runs, over)};
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
  std::string text = as_table(runs, figure_rows(all_figures(runs))) + "\n";
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

std::string comparison_svg(const std::vector<RunHistory>& runs) { return to_svg(loss_chart(runs, CurveOver::Steps)); }

std::string comparison_page(const std::vector<RunHistory>& runs) {
  std::vector<Section> sections = {{"Results", rows_as_html(runs, figure_rows(all_figures(runs)))}};
  const auto rows = difference_rows(runs);
  const std::string why = no_differences(runs);
  sections.push_back({"What differs", (rows.empty() ? "" : rows_as_html(runs, rows)) +
                                          (why.empty() ? "" : fmt::format("<p>{}.</p>", escape_markup(why)))});
  sections.push_back({"Loss", side_by_side({to_svg(loss_chart(runs, CurveOver::Steps)),
                                            to_svg(loss_chart(runs, CurveOver::Seconds))})});
  const LineChart time{.title = "Time of a step",
                       .x_label = "step",
                       .y_label = "seconds",
                       .series = step_curves(runs, &StepMetrics::step_seconds),
                       .from_zero = true};
  sections.push_back({"Throughput", side_by_side({to_svg(speed_chart(runs)), to_svg(time)})});
  std::ranges::move(order_sections(runs), std::back_inserter(sections));
  return html_page("Runs side by side", fmt::format("{} runs", runs.size()), sections);
}

}  // namespace chimera
