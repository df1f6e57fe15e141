#include "answers/sweep_answer.h"

#include <fmt/ranges.h>
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "answers/schedule_request.h"
#include "check/check_limits.h"
#include "core/choices.h"
#include "core/complete_name.h"
#include "core/counted.h"
#include "core/json.h"
#include "core/mapped.h"
#include "core/reject.h"
#include "generate/registry.h"
#include "render/chart.h"
#include "render/panel.h"
#include "render/text_table.h"
#include "simulate/simulate.h"

// Sweeper::run() has three loops: over shapes (D, N and parameters of the lists), over times of the lists, and over
// schedules. The first two make a condition. A schedule gets a row per condition, from its best parameters if the user
// named no schedules, and is otherwise left out with the reason. Rows are sorted within their condition only, because
// makespans of different conditions say nothing about schedules.

namespace chimera {
namespace {

// The cells before this column are inputs, and the cells from it on are results (SweepRow::inputs()).
constexpr const char* kFirstFigure = "makespan";

std::string changed_parameters(const Generator& generator, const PipelineShape& shape) {
  std::vector<std::string> flags;
  for (const SupportedAxis& taken : generator.axes) {
    const ShapeAxis& axis = shape_axis(taken.axis);
    if (axis.get(shape) != taken.usual) flags.push_back(axis.flag() + " " + axis.text(shape));
  }
  return fmt::format("{}", fmt::join(flags, " "));
}

SweepCell number_cell(const std::string& column, double value, bool is_condition = false) {
  return {column, fmt::format("{:.10g}", value), true, is_condition, value};
}

/// Returns the column as words, for people.
std::string words_of(std::string column) {
  std::replace(column.begin(), column.end(), '_', ' ');
  return column;
}

std::string condition_of(const SweepRow& row) {
  // One text with all cells of the condition, as a key.
  std::string text;
  for (const SweepCell& cell : row.cells)
    if (cell.is_condition) text += cell.text + ",";
  return text;
}

class Sweeper {
 public:
  explicit Sweeper(const SweepRequest& sweep)
      : sweep_(sweep), limits_(sweep.limits.limits()), names_(swept_schedules()) {}

  SweepResult run() {
    require_taken_axes();
    const std::vector<CostRequest> all_costs = sweep_.costs.combinations();
    // Files have a D and N of their own, so that they need no --stages and --micro-batches.
    const bool has_only_files =
        std::ranges::all_of(names_, [&](const std::string& name) { return is_file(name); }) && !sweep_.shape.is_given();
    for (const PipelineShape& counts : has_only_files ? std::vector{PipelineShape{}} : sweep_.shape.listed_counts()) {
      for (const CostRequest& costs : all_costs) {
        const std::size_t first = result_.rows.size();
        for (const std::string& name : names_) {
          if (is_file(name)) {
            add_file(name, counts, costs);
          } else {
            const Generator& generator = find_generator(name);
            for (const PipelineShape& shape : sweep_.shape.listed_shapes(generator, counts))
              add(generator, shape, costs);
          }
        }
        std::ranges::stable_sort(std::span(result_.rows).subspan(first), {},
                                 [this](const SweepRow& row) { return rank(row); });
      }
    }
    if (result_.rows.empty()) {
      const LeftOutSchedule& first = result_.left_out.front();
      reject("sweep: no schedule is left; {}: {}", first.name, first.reason);
    }
    // Reported last: the user has not asked for them by name, and they come after schedules that failed.
    for (const Generator& generator : generators())
      if (tries_all() && !generator.synchronous) leave_out(generator.name, "updates weights without a flush");
    if (!has_slices_) result_.notes = sweep_.costs.unused_without_slices();
    if (sweep_.pairs.time && !has_pairs_) result_.notes.emplace_back(kNoPairs);
    return std::move(result_);
  }

 private:
  [[nodiscard]] bool tries_all() const { return sweep_.schedules.empty(); }
  [[nodiscard]] bool is_file(const std::string& name) const { return sweep_.load && names_schedule_file(name); }

  [[nodiscard]] std::vector<std::string> swept_schedules() const {
    if (sweep_.schedules == "all") return schedule_names();
    std::vector<std::string> names;
    for (const Generator& generator : generators())
      if (tries_all() && generator.synchronous) names.push_back(generator.name);
    if (tries_all()) return names;
    for (const std::string_view part : split_at_commas(sweep_.schedules)) {
      names.push_back(complete_name(std::string(part), schedule_names()));
      if (!is_file(names.back())) (void)find_generator(names.back());
    }
    return names;
  }

  void require_taken_axes() const {
    // A flag may be for some of the schedules; one that no schedule takes is a mistake.
    for (const AxisValues& given : sweep_.shape.axes) {
      const auto takes = [&](const std::string& name) {
        return !is_file(name) && find_axis(find_generator(name), given.axis->axis) != nullptr;
      };
      if (!given.is_given() || std::ranges::any_of(names_, takes)) continue;
      reject("{} applies to none of {}", given.axis->flag(), fmt::join(names_, ", "));
    }
  }

  void add(const Generator& generator, const PipelineShape& asked, const CostRequest& times) {
    // The rows of one schedule at one condition: the best alone, or all for a Pareto front.
    std::vector<SweepRow> kept;
    std::string reason;
    for (const PipelineShape& shape :
         sweep_.shape.variants(generator, asked, tries_all() ? VariedParameters::All : VariedParameters::ByCosts)) {
      // Refused shapes are left out. The first reason is reported if no shape is left.
      if (const auto refusal = generator.find_shape_error(shape)) {
        if (reason.empty()) reason = *refusal;
        continue;
      }
      auto row = try_row(generator.name, &generator, shape, times, generator.generate(shape), reason);
      if (!row) continue;
      // The parameters with the least makespan stand for the schedule, unless all are wanted for a front.
      if (kept.empty() || (sweep_.pareto && tries_all()))
        kept.push_back(*std::move(row));
      else if (rank(*row) < rank(kept.front()))
        kept.front() = *std::move(row);
    }
    if (kept.empty()) return leave_out(generator.name, reason);
    result_.rows.insert(result_.rows.end(), kept.begin(), kept.end());
  }

  void add_file(const std::string& path, const PipelineShape& counts, const CostRequest& times) {
    // Standard input can be read once, and a file need not be parsed for each condition.
    const auto [entry, is_new] = files_.try_emplace(path);
    if (is_new) entry->second = sweep_.load(path);
    const Schedule& schedule = entry->second;
    const PipelineShape own = {
        .stages = static_cast<std::int64_t>(schedule.workers.size()),
        .micro_batches = std::llround(static_cast<double>(schedule.micro_batches) * schedule.micro_batch_scale)};
    if (counts.stages != 0 && (counts.stages != own.stages || counts.micro_batches != own.micro_batches))
      return leave_out(path, fmt::format("has D = {} and N = {}", own.stages, own.micro_batches));
    std::string reason;
    auto row = try_row(path, nullptr, own, times, schedule, reason);
    if (!row) return leave_out(path, reason);
    result_.rows.push_back(*std::move(row));
  }

  /// Returns nothing, with the reason, if the schedule exceeds the limits or does not fit the costs. `generator` is
  /// null for a file.
  std::optional<SweepRow> try_row(const std::string& name, const Generator* generator, const PipelineShape& shape,
                                  const CostRequest& times, const Schedule& unpaired, std::string& reason) {
    try {
      const Schedule schedule = sweep_.pairs.apply_to(unpaired);
      if (!check_limits(schedule, limits_).empty()) reject("holds more than {}", sweep_.limits.text());
      has_slices_ = has_slices_ || schedule.slices > 1;
      has_pairs_ = has_pairs_ || has_pairs(schedule);
      const CostModel costs = sweep_.pairs.with_time(times.costs_of(schedule));
      return row_of(name, generator, shape, times, panel_of(schedule, simulate(schedule, costs), costs));
    } catch (const ConfigError& error) {  // costs of another number of stages
      reason = error.what();
      return std::nullopt;
    }
  }

  [[nodiscard]] SweepRow row_of(const std::string& name, const Generator* generator, const PipelineShape& shape,
                                const CostRequest& times, const Panel& panel) const {
    // Only sweeps over slices have a column for them, so that other tables keep their columns.
    const bool has_slices = sweep_.shape.values_of(Axis::Slices).is_given();
    SweepRow row{.cells = {{.column = "schedule", .text = name, .is_number = false},
                           number_cell("stages", static_cast<double>(shape.stages), true),
                           number_cell("micro_batches", static_cast<double>(shape.micro_batches), true)},
                 .parameters = generator == nullptr ? "" : changed_parameters(*generator, shape)};
    for (const ShapeAxis& axis : shape_axes()) {
      if (axis.axis == Axis::Slices && !has_slices) continue;
      const bool taken = generator != nullptr && find_axis(*generator, axis.axis) != nullptr;
      SweepCell& cell = row.cells.emplace_back(SweepCell{std::string(axis.name), "", axis.is_number()});
      if (!taken) continue;
      cell.text = axis.text(shape);
      if (axis.is_number()) cell.number = static_cast<double>(axis.get(shape));
    }
    for (const TimeList& list : times.lists) row.cells.push_back(number_cell(list.column, *(times.*list.time), true));
    row.cells.insert(row.cells.end(), {number_cell(kFirstFigure, panel.timeline.makespan),
                                       number_cell("bubble_ratio", panel.timeline.bubble_ratio),
                                       number_cell("lower_bound", panel.timeline.lower_bound),
                                       number_cell("inner_bubble", panel.timeline.inner_bubble),
                                       number_cell("peak_stage_units", panel.totals.peak_units),
                                       number_cell("weight_copies", panel.totals.weight_copies)});
    return row;
  }

  /// Named schedules of equal makespan keep their order. Only files without --stages differ in D and N.
  [[nodiscard]] std::vector<double> rank(const SweepRow& row) const {
    std::vector<double> numbers = {row.number("stages"), row.number("micro_batches"), row.number(kFirstFigure)};
    if (tries_all()) numbers.insert(numbers.end(), {row.number("peak_stage_units"), row.number("weight_copies")});
    return numbers;
  }

  void leave_out(const std::string& name, const std::string& reason) {
    const auto known = std::ranges::find(result_.left_out, name, &LeftOutSchedule::name);
    if (known == result_.left_out.end()) {
      result_.left_out.push_back({name, reason});
    } else {
      // The first reason stands for all of them.
      ++known->more;
    }
  }

  const SweepRequest& sweep_;
  const Limits limits_;
  std::vector<std::string> names_;
  std::map<std::string, Schedule> files_;
  SweepResult result_;
  bool has_slices_ = false;  // any of the simulated schedules
  bool has_pairs_ = false;
};

/// Returns the rows that stay with SweepRequest::pareto.
std::vector<SweepRow> pareto_fronts(const std::vector<SweepRow>& rows) {
  const auto covers = [](const SweepRow& a, const SweepRow& b) {
    return a.schedule() == b.schedule() && condition_of(a) == condition_of(b) &&
           a.number(kFirstFigure) <= b.number(kFirstFigure) &&
           a.number("peak_stage_units") <= b.number("peak_stage_units");
  };
  std::vector<SweepRow> fronts;
  for (const SweepRow& row : rows) {
    // The first of two equal rows stays.
    const auto replaces = [&](const SweepRow& other) {
      return &other != &row && covers(other, row) && (&other < &row || !covers(row, other));
    };
    if (std::ranges::none_of(rows, replaces)) fronts.push_back(row);
  }
  return fronts;
}

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
  for (const SweepCell& cell : rows.front().cells)
    if (cell.is_condition && !is_equal_in_all(rows, cell.column)) columns.push_back(cell.column);
  return columns;
}

std::string table_of(const std::vector<SweepRow>& rows) {
  const std::vector<std::string> conditions = listed_conditions(rows);
  // `sweep --train` adds the measured columns to all rows or to none.
  const bool is_trained = !rows.front().text(kMeasuredColumns.front()).empty();
  std::vector<std::string> head = {"schedule", "parameters"};
  for (const std::string& column : conditions) head.push_back(words_of(column));
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
    if (cell.column == "stages")
      name += fmt::format(", D = {}", cell.text);
    else if (cell.column == "micro_batches")
      name += fmt::format(", N = {}", cell.text);
    else if (cell.is_condition)
      name += fmt::format(", {} {}", words_of(cell.column), cell.text);
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

std::vector<SweepCell> SweepRow::inputs() const {
  return {cells.begin(), std::ranges::find(cells, std::string(kFirstFigure), &SweepCell::column)};
}

const SweepCell& SweepRow::cell(const std::string& column) const {
  static const SweepCell none;
  const auto found = std::ranges::find(cells, column, &SweepCell::column);
  return found == cells.end() ? none : *found;
}

void SweepRequest::visit(Door& door) {
  door.group("Schedule and shape");
  door.text({"schedules",
             "schedules with their default parameters: NAME,NAME, files too, or all (default: every synchronous "
             "schedule with its best parameters)",
             "NAMES"},
            [this](const std::string& names) { schedules = names; });
  shape.visit(door, FieldValues::Lists);
  pairs.visit(door);
  costs.visit(door, FieldValues::Lists);
  pairs.visit_time(door);
  limits.visit(door, "schedules above the limit have no row (default: no limit)");
  door.group("Output");
  door.field({"pareto", "keep only rows that no other row of the same schedule, D and N beats in both time and memory"},
             pareto);
}

SweepResult answer(const SweepRequest& request) {
  SweepResult result = Sweeper(request).run();
  if (request.pareto) result.rows = pareto_fronts(result.rows);
  return result;
}

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
    return fmt::format("{}\n", fmt::join(mapped(row.cells, part), ","));
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
  for (const SweepCell& cell : rows.front().cells)
    if (cell.is_number) columns.push_back(cell.column);
  for (const std::string& column : {value, over})
    if (std::ranges::find(columns, column) == columns.end()) throw ConfigError(unknown_name("column", column, columns));
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
