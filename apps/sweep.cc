#include "sweep.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "count_list.h"
#include "fastest.h"
#include "render/panel.h"

namespace chimera::apps {
namespace {

class Sweeper {
 public:
  explicit Sweeper(const Sweep& sweep) : sweep_(sweep) {}

  std::vector<SweepRow> rows() {
    const std::vector<CostFlags> all_costs = sweep_.costs.listed();
    for (const PipelineShape& lists : sweep_.shape.listed()) {
      for (const CostFlags& costs : all_costs) {
        for (const std::string& name : sweep_.schedules) add(find_generator(name), lists, costs);
      }
    }
    if (rows_.empty()) throw ConfigError("simulate: " + why_none());
    return std::move(rows_);
  }

 private:
  void add(const Generator& generator, const PipelineShape& lists, const CostFlags& flags) {
    const auto asked = sweep_.shape.taken_of(generator, lists);
    if (!asked) return;  // a parameter that it does not take has another value than the first: the same shape again
    if (const auto refusal = generator.refusal(*asked)) {
      refusal_ = generator.name + ": " + *refusal;
      return;
    }
    const auto panel = [&](const Schedule& schedule) {
      const CostModel costs = sweep_.pairs.with_time(flags.costs_of(schedule));
      return panel_of(schedule, simulate(schedule, costs), costs);
    };
    const auto makespan = [&](const Schedule& schedule) {
      const Panel timed = panel(sweep_.pairs.paired(schedule));
      return fits(timed) ? timed.timeline.makespan : std::numeric_limits<double>::infinity();
    };
    const auto [shape, schedule] = fastest_of(generator, sweep_.shape.by_costs(generator, *asked), makespan);
    const Panel best = panel(sweep_.pairs.paired(schedule));
    if (fits(best)) {
      rows_.push_back(row_of(generator, shape, flags, best));
    } else {
      ++too_large_;
    }
  }

  [[nodiscard]] bool fits(const Panel& panel) const { return check_limits(panel.schedule, sweep_.limits).empty(); }

  static SweepRow row_of(const Generator& generator, const PipelineShape& shape, const CostFlags& flags,
                         const Panel& panel) {
    const Timeline& timeline = panel.timeline;
    SweepRow row = {{"schedule", generator.name, false},
                    {"stages", std::to_string(shape.stages)},
                    {"micro_batches", std::to_string(shape.micro_batches)}};
    for (const ShapeAxis& axis : shape_axes()) {
      const bool taken = find_axis(generator, axis.axis) != nullptr;
      row.push_back({std::string(axis.name), taken ? axis.text(shape) : "", axis.is_number()});
    }
    const auto number = [&](const char* column, double value) {
      row.push_back({column, fmt::format("{:.10g}", value)});
    };
    for (const TimeFlag* flag : flags.lists()) number(flag->column.c_str(), flags.*flag->time);
    number("makespan", timeline.makespan);
    number("bubble_ratio", timeline.bubble_ratio);
    number("lower_bound", timeline.lower_bound);
    number("inner_bubble", timeline.inner_bubble);
    number("peak_stage_units", panel.totals.peak_units);
    number("weight_copies", panel.totals.weight_copies);
    return row;
  }

  [[nodiscard]] std::string why_none() const {
    if (too_large_ > 0) {
      return fmt::format("{}: all {} schedules that fit the shape hold more", sweep_.limited_by, too_large_);
    }
    return refusal_.empty() ? "--schedules: none takes the shape" : refusal_;
  }

  const Sweep& sweep_;
  std::vector<SweepRow> rows_;
  std::string refusal_;  // the last one
  std::int64_t too_large_ = 0;
};

std::string as_table(const std::vector<SweepRow>& rows) {
  std::vector<std::size_t> widths;
  for (const SweepCell& cell : rows.front()) widths.push_back(cell.column.size());
  for (const SweepRow& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].text.size());
  }
  const auto line = [&](const SweepRow& row, std::string SweepCell::*part) {
    std::string text = fmt::format("{:<{}}", row[0].*part, widths[0]);
    for (std::size_t c = 1; c < row.size(); ++c) text += fmt::format("  {:>{}}", row[c].*part, widths[c]);
    return text + "\n";
  };
  std::string text = line(rows.front(), &SweepCell::column);
  for (const SweepRow& row : rows) text += line(row, &SweepCell::text);
  return text;
}

}  // namespace

std::vector<std::string> listed_schedules(const std::string& text) {
  if (text == "all") return schedule_names();
  std::vector<std::string> names;
  for (const std::string_view part : parts_of(text)) {
    names.emplace_back(part);
    (void)find_generator(names.back());
  }
  return names;
}

std::string as_csv(const std::vector<SweepRow>& rows) {
  const auto line = [](const SweepRow& row, std::string SweepCell::*part) {
    std::vector<std::string> cells;
    for (const SweepCell& cell : row) cells.push_back(cell.*part);
    return fmt::format("{}\n", fmt::join(cells, ","));
  };
  std::string text = line(rows.front(), &SweepCell::column);
  for (const SweepRow& row : rows) text += line(row, &SweepCell::text);
  return text;
}

std::string as_json_lines(const std::vector<SweepRow>& rows) {
  std::string text;
  for (const SweepRow& row : rows) {
    nlohmann::ordered_json json;
    for (const SweepCell& cell : row) {
      if (cell.text.empty()) continue;  // a parameter that the schedule does not take
      json[cell.column] = cell.is_number ? nlohmann::ordered_json::parse(cell.text) : nlohmann::ordered_json(cell.text);
    }
    text += json.dump() + "\n";
  }
  return text;
}

std::vector<SweepRow> sweep_rows(const Sweep& sweep) { return Sweeper(sweep).rows(); }

Format format_of_sweep(const CLI::Option& given, Format format) {
  if (given.count() == 0) return Format::Csv;
  if (format == Format::Csv || format == Format::Json || format == Format::Text) return format;
  throw ConfigError(fmt::format("--format {} shows one schedule; a sweep is csv, json or text", to_text(format)));
}

std::string swept(const Sweep& sweep, Format format) {
  const auto rows = sweep_rows(sweep);
  if (format == Format::Json) return as_json_lines(rows);
  return format == Format::Text ? as_table(rows) : as_csv(rows);
}

}  // namespace chimera::apps
