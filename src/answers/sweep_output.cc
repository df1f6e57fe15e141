#include "answers/sweep_output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "answers/schedule_request.h"
#include "core/choices.h"
#include "core/counted.h"
#include "core/error.h"
#include "core/json.h"
#include "generate/registry.h"
#include "render/chart.h"
#include "render/text_table.h"

namespace chimera {
namespace {

bool is_equal_in_all(const std::vector<SweepRow>& rows, const std::string& column) {
  return std::ranges::all_of(rows, [&](const SweepRow& row) { return row.text(column) == rows.front().text(column); });
}

std::string number_text(const SweepRow& row, const std::string& column) {
  return fmt::format("{:.6g}", row.number(column));
}

double percents_above_bound(const SweepRow& row) {
  const double bound = row.number("lower_bound");
  return bound > 0 ? std::max(0.0, 100 * (row.number("makespan") / bound - 1)) : 0;
}

/// Columns of the conditions whose values differ between rows.
std::vector<std::string> listed_conditions(const std::vector<SweepRow>& rows) {
  std::vector<std::string> columns;
  for (const SweepCell& cell : rows.front().inputs()) {
    const bool is_shape = cell.column == "stages" || cell.column == "micro_batches";
    // Times are listed only if the command line has several, but D and N are in every row.
    if (is_time(cell.column) || (is_shape && !is_equal_in_all(rows, cell.column))) columns.push_back(cell.column);
  }
  return columns;
}

std::string table_of(const std::vector<SweepRow>& rows) {
  const std::vector<std::string> conditions = listed_conditions(rows);
  // `sweep --train` adds the measured columns to all rows or to none.
  const bool is_trained = !rows.front().text(kMeasuredColumns.front()).empty();
  std::vector<std::string> head = {"schedule", "parameters"};
  for (std::string column : conditions) {
    std::replace(column.begin(), column.end(), '_', ' ');
    head.push_back(column);
  }
  head.insert(head.end(), {"makespan", "bubble", "activations", "weights", "gap"});
  if (is_trained) head.insert(head.end(), {"tokens/s", "step s", "peak MB", "last loss"});
  std::vector<std::vector<std::string>> table = {head};
  for (const SweepRow& row : rows) {
    auto& line = table.emplace_back(std::vector{row.schedule(), row.parameters});
    for (const std::string& column : conditions) line.push_back(row.text(column));
    line.insert(line.end(), {number_text(row, "makespan"), fmt::format("{:.1f} %", 100 * row.number("bubble_ratio")),
                             number_text(row, "peak_stage_units"), number_text(row, "weight_copies"),
                             fmt::format("{:.1f} %", percents_above_bound(row))});
    if (!is_trained) continue;
    line.insert(
        line.end(),
        {fmt::format("{:.0f}", row.number("tokens_per_second")), fmt::format("{:.4g}", row.number("step_seconds")),
         fmt::format("{:.0f}", row.number("peak_memory_bytes") / 1e6), fmt::format("{:.4f}", row.number("last_loss"))});
  }
  return text_table(table, 2);
}

std::string next_commands(const SweepRow& best) {
  const std::string shape =
      fmt::format("--stages {} --micro-batches {}", best.text("stages"), best.text("micro_batches"));
  // `search` gets D and N alone: its other parameters are those of placements.
  const std::string flags = shape + (best.parameters.empty() ? "" : " " + best.parameters);
  return fmt::format(
      "\nwith the same flags for costs, draw the best: chimera simulate {0} {1}\n"
      "look for a faster order of ops: chimera search {2}\n"
      "train with it: chimera train --schedule {0} {1} --data FILE\n",
      best.schedule(), flags, shape);
}

/// The curve of a front has all parameters of its points.
std::string curve_of(const SweepRow& row, const std::string& over, bool merges_parameters) {
  std::string name = row.schedule();
  for (const SweepCell& cell : row.inputs()) {
    // What differs along the curve is not part of its name.
    if (cell.column == over || cell.text.empty() || cell.column == "schedule") continue;
    if (cell.column == "stages") name += fmt::format(", D = {}", cell.text);
    if (cell.column == "micro_batches") name += fmt::format(", N = {}", cell.text);
    if (is_time(cell.column)) {
      std::string words = cell.column;
      std::replace(words.begin(), words.end(), '_', ' ');
      name += fmt::format(", {} {}", words, cell.text);
    }
    if (merges_parameters) continue;
    for (const ShapeAxis& axis : shape_axes()) {
      // Defaults would make names of curves long without telling them apart.
      if (cell.column != axis.name || cell.text == axis.text(PipelineShape())) continue;
      name += axis.is_number() ? fmt::format(", {} {}", cell.text, axis.name) : ", " + cell.text;
    }
  }
  return name;
}

}  // namespace

std::string to_text(const LeftOutSchedule& schedule) {
  return fmt::format("left out {}: {}{}", schedule.name, schedule.reason,
                     schedule.more == 0 ? "" : fmt::format(" (and {})", counted(schedule.more, "more row")));
}

std::string to_text(const SweepResult& result) {
  const SweepRow& best = result.rows.front();
  std::string text = table_of(result.rows);
  text +=
      "\nbubble: idle share of all workers; activations: most on a worker, in stage units (one full micro-batch on "
      "its\n"
      "share of the model); weights: copies of a worker's share; gap: to the lower bound of the placement\n";
  if (!result.left_out.empty()) text += "\n";
  for (const LeftOutSchedule& each : result.left_out) text += to_text(each) + "\n";
  // Several conditions have several best schedules, and the suggested commands cannot name a file by its shape.
  if (!listed_conditions(result.rows).empty() || names_schedule_file(best.schedule())) return text;
  return text + next_commands(best);
}

std::string to_csv(const std::vector<SweepRow>& rows) {
  const auto line = [](const SweepRow& row, std::string SweepCell::*part) {
    std::vector<std::string> cells;
    for (const SweepCell& cell : row.cells) cells.push_back(cell.*part);
    return fmt::format("{}\n", fmt::join(cells, ","));
  };
  std::string text = line(rows.front(), &SweepCell::column);
  for (const SweepRow& row : rows) text += line(row, &SweepCell::text);
  return text;
}

nlohmann::ordered_json rows_json(const std::vector<SweepRow>& rows) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const SweepRow& row : rows) {
    nlohmann::ordered_json& json = list.emplace_back();
    for (const SweepCell& cell : row.cells) {
      if (cell.text.empty()) continue;
      json[cell.column] = cell.is_number ? read_ordered_json(cell.text) : nlohmann::ordered_json(cell.text);
    }
  }
  return list;
}

std::string to_json_lines(const std::vector<SweepRow>& rows) {
  std::string text;
  for (const auto& json : rows_json(rows)) text += json_text(json) + "\n";
  return text;
}

std::string draw_chart(const std::vector<SweepRow>& rows, const std::string& value, const std::string& over,
                       bool merges_parameters) {
  std::vector<std::string> columns;
  for (const SweepCell& cell : rows.front().cells) {
    if (cell.is_number) columns.push_back(cell.column);
  }
  for (const std::string& column : {value, over}) {
    if (std::ranges::find(columns, column) == columns.end()) throw ConfigError(unknown_name("column", column, columns));
  }
  LineChart chart{.title = fmt::format("{} over {}", value, over),
                  .x_label = over,
                  .y_label = value,
                  .series = {},
                  .from_zero = true};
  for (const SweepRow& row : rows) {
    const std::string name = curve_of(row, over, merges_parameters);
    auto series = std::ranges::find(chart.series, name, &Series::name);
    if (series == chart.series.end()) {
      // Few points, at which readers look one by one.
      series = chart.series.insert(series, {.name = name, .points = {}, .style = CurveStyle::Marks});
    }
    series->points.emplace_back(row.number(over), row.number(value));
  }
  // Rows come by makespan, and a curve needs its points in the order of x.
  for (Series& series : chart.series) std::ranges::sort(series.points);
  return to_svg(chart);
}

}  // namespace chimera
