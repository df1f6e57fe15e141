#include "sweep_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "commands.h"
#include "core/choices.h"
#include "core/console.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "generate/generator.h"
#include "help.h"
#include "limit_flags.h"
#include "options.h"
#include "pair_flags.h"
#include "plan_flags.h"
#include "program.h"
#include "render/chart.h"
#include "render/panel.h"
#include "schedule_file.h"
#include "telemetry/run_history.h"

namespace chimera::apps {
namespace {

class Sweeper {
 public:
  explicit Sweeper(const Sweep& sweep) : sweep_(sweep) {}

  std::vector<SweepRow> rows() {
    require_taken_axes();
    const std::vector<CostFlags> all_costs = sweep_.costs.listed();
    const bool has_only_files = std::ranges::all_of(sweep_.schedules, names_schedule_file) && !sweep_.shape.given();
    for (const PipelineShape& lists : has_only_files ? std::vector{PipelineShape{}} : sweep_.shape.listed()) {
      for (const CostFlags& costs : all_costs) {
        for (const std::string& name : sweep_.schedules) {
          if (names_schedule_file(name)) {
            add_file(name, lists, costs);
          } else {
            add(find_generator(name), lists, costs);
          }
        }
      }
    }
    if (rows_.empty()) throw ConfigError("simulate: " + why_none());
    report_left_out();
    sweep_.costs.report_without_slices(has_slices_);
    sweep_.pairs.report_without_pairs(has_pairs_);
    return std::move(rows_);
  }

 private:
  void require_taken_axes() const {
    for (const AxisFlag& flag : sweep_.shape.axes) {
      const auto takes = [&](const std::string& name) {
        return !names_schedule_file(name) && find_axis(find_generator(name), flag.axis.axis) != nullptr;
      };
      if (!flag.given() || std::ranges::any_of(sweep_.schedules, takes)) continue;
      throw ConfigError(fmt::format("{} applies to none of {}", flag.axis.flag(), fmt::join(sweep_.schedules, ", ")));
    }
  }

  void add(const Generator& generator, const PipelineShape& lists, const CostFlags& flags) {
    const auto asked = sweep_.shape.applicable_shape(generator, lists);
    if (!asked) return;  // duplicate: differs only in a parameter that the schedule lacks
    if (const auto refusal = generator.refusal(*asked)) {
      refusal_ = generator.name + ": " + *refusal;
      return leave_out(generator.name, *refusal);
    }
    const auto makespan = [&](const Schedule& schedule) {
      const Panel timed = panel(sweep_.pairs.paired(schedule), flags);
      return fits(timed) ? timed.timeline.makespan : std::numeric_limits<double>::infinity();
    };
    const auto [shape, schedule] = fastest_of(generator, sweep_.shape.by_costs(generator, *asked), makespan);
    add_row(generator.name, &generator, shape, flags, panel(sweep_.pairs.paired(schedule), flags));
  }

  void add_file(const std::string& path, const PipelineShape& lists, const CostFlags& flags) {
    const auto [entry, is_new] = files_.try_emplace(path);
    if (is_new) entry->second = read_schedule(path);
    const Schedule& schedule = entry->second;
    const PipelineShape own = {
        .stages = static_cast<std::int64_t>(schedule.workers.size()),
        .micro_batches = std::llround(static_cast<double>(schedule.micro_batches) * schedule.micro_batch_scale)};
    const auto is_first = [&](const AxisFlag& flag) {
      return !flag.given() || flag.axis.get(lists) == flag.values.front();
    };
    if (!std::ranges::all_of(sweep_.shape.axes, is_first)) return;  // duplicate
    if (lists.stages != 0 && (lists.stages != own.stages || lists.micro_batches != own.micro_batches)) {
      refusal_ = fmt::format("{}: has D = {} and N = {}", path, own.stages, own.micro_batches);
      return leave_out(path, fmt::format("has D = {} and N = {}", own.stages, own.micro_batches));
    }
    add_row(path, nullptr, own, flags, panel(sweep_.pairs.paired(schedule), flags));
  }

  [[nodiscard]] Panel panel(const Schedule& schedule, const CostFlags& flags) {
    has_slices_ = has_slices_ || schedule.slices > 1;
    has_pairs_ = has_pairs_ || has_pairs(schedule);
    const CostModel costs = sweep_.pairs.with_time(flags.costs_of(schedule));
    return panel_of(schedule, simulate(schedule, costs), costs);
  }

  void add_row(const std::string& name, const Generator* generator, const PipelineShape& shape, const CostFlags& flags,
               const Panel& panel) {
    if (fits(panel)) return rows_.push_back(row_of(name, generator, shape, flags, panel));
    ++too_large_;
    leave_out(name, "holds more than " + sweep_.limited_by);
  }

  void leave_out(const std::string& name, const std::string& reason) {
    const auto known = std::ranges::find(left_out_, name, &LeftOut::name);
    if (known == left_out_.end()) {
      left_out_.push_back({name, reason, 0});
    } else {
      ++known->more;
    }
  }

  void report_left_out() const {
    for (const LeftOut& each : left_out_) {
      messages().write(fmt::format("chimera: left out {}: {}{}\n", each.name, each.reason,
                                   each.more == 0 ? "" : fmt::format(" (and {} more rows)", each.more)));
    }
  }

  [[nodiscard]] bool fits(const Panel& panel) const { return check_limits(panel.schedule, sweep_.limits).empty(); }

  /// `generator` is null for a file.
  [[nodiscard]] SweepRow row_of(const std::string& name, const Generator* generator, const PipelineShape& shape,
                                const CostFlags& flags, const Panel& panel) const {
    const bool has_slices = std::ranges::any_of(
        sweep_.shape.axes, [](const AxisFlag& flag) { return flag.axis.axis == Axis::Slices && flag.given(); });
    const Timeline& timeline = panel.timeline;
    SweepRow row = {{"schedule", name, false},
                    {"stages", std::to_string(shape.stages)},
                    {"micro_batches", std::to_string(shape.micro_batches)}};
    for (const ShapeAxis& axis : shape_axes()) {
      if (axis.axis == Axis::Slices && !has_slices) continue;
      const bool taken = generator != nullptr && find_axis(*generator, axis.axis) != nullptr;
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

  struct LeftOut {
    std::string name;
    std::string reason;  // for the first shape
    std::int64_t more = 0;
  };

  const Sweep& sweep_;
  std::vector<SweepRow> rows_;
  std::map<std::string, Schedule> files_;
  std::vector<LeftOut> left_out_;
  std::string refusal_;  // the last one
  std::int64_t too_large_ = 0;
  bool has_slices_ = false;  // any of the simulated schedules
  bool has_pairs_ = false;
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
    if (!names_schedule_file(names.back())) (void)find_generator(names.back());
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
      if (cell.text.empty()) continue;  // a parameter that the schedule lacks
      json[cell.column] = cell.is_number ? read_ordered_json(cell.text) : nlohmann::ordered_json(cell.text);
    }
    text += json_text(json) + "\n";
  }
  return text;
}

std::vector<SweepRow> sweep_rows(const Sweep& sweep) { return Sweeper(sweep).rows(); }

Format format_of_sweep(const CLI::Option& given, Format format) {
  if (given.count() == 0 && format == Format::Text) return Format::Csv;
  if (format == Format::Csv || format == Format::Json || format == Format::Text) return format;
  throw ConfigError(fmt::format("--format {} shows one schedule; a sweep is csv, json or text", to_text(format)));
}

namespace {

bool is_time(const SweepCell& cell) { return std::ranges::find(kTimeColumns, cell.column) != kTimeColumns.end(); }

double number_in(const SweepRow& row, const std::string& column) {
  const auto cell = std::ranges::find(row, column, &SweepCell::column);
  if (cell == row.end() || cell->text.empty()) return std::numeric_limits<double>::quiet_NaN();
  return std::stod(cell->text);
}

std::string conditions_of(const SweepRow& row) {
  std::string text;
  for (const SweepCell& cell : row) {
    if (cell.column == "stages" || cell.column == "micro_batches" || is_time(cell)) text += cell.text + ",";
  }
  return text;
}

void sort_by_makespan(std::vector<SweepRow>& rows) {
  std::map<std::string, std::size_t> positions;
  for (const SweepRow& row : rows) positions.try_emplace(conditions_of(row), positions.size());
  std::ranges::stable_sort(rows, {}, [&](const SweepRow& row) {
    return std::pair(positions.at(conditions_of(row)), number_in(row, "makespan"));
  });
}

}  // namespace

std::string swept(const Sweep& sweep, Format format) {
  auto rows = sweep_rows(sweep);
  sort_by_makespan(rows);
  if (format == Format::Json) return as_json_lines(rows);
  return format == Format::Text ? as_table(rows) : as_csv(rows);
}

namespace {

struct SweepArguments {
  std::string schedules;
  ShapeFlags shape;
  CostFlags costs;
  PairFlags pairs;
  std::string train;  // training data; empty: simulation only
  std::string output;
  std::string chart;
  std::string value;
  std::string over;
  LimitFlags limits;
  bool pareto = false;
  Format format = Format::Csv;
};

constexpr std::array kMeasured = {"tokens_per_second", "step_seconds", "peak_memory_bytes", "last_loss"};

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t end = line.find(','); end != std::string::npos; end = line.find(',', begin)) {
    parts.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  parts.push_back(line.substr(begin));
  return parts;
}

std::string key_of(const SweepRow& row) {
  std::string key;
  for (const SweepCell& cell : row) {
    if (cell.column == "makespan") break;
    key += cell.text + ",";
  }
  return key;
}

std::string head_of(const SweepRow& row) {
  std::string head;
  for (const SweepCell& cell : row) head += cell.column + ",";
  for (const char* column : kMeasured) head += std::string(column) + (column == kMeasured.back() ? "" : ",");
  return head;
}

/// Keys come from key_of(). Throws ConfigError if the file has other columns.
std::map<std::string, std::vector<std::string>> measured_before(const std::string& path, const SweepRow& like) {
  std::map<std::string, std::vector<std::string>> found;
  if (path.empty() || path == "-" || !std::filesystem::exists(path) || std::filesystem::is_empty(path)) return found;
  std::istringstream lines(read_whole(path));
  std::string line;
  std::getline(lines, line);
  if (line != head_of(like)) {
    throw ConfigError(fmt::format("--output {}: exists and is not a table of this sweep; give another file", path));
  }
  const auto keys =
      static_cast<std::ptrdiff_t>(std::ranges::find(like, std::string("makespan"), &SweepCell::column) - like.begin());
  while (std::getline(lines, line)) {
    const auto cells = split(line);
    if (cells.size() != like.size() + kMeasured.size()) continue;
    std::string key;
    for (auto cell = cells.begin(); cell != cells.begin() + keys; ++cell) key += *cell + ",";
    found[key] = {cells.end() - static_cast<std::ptrdiff_t>(kMeasured.size()), cells.end()};
  }
  return found;
}

std::vector<std::string> measure(const SweepRow& row, const std::string& data, const std::vector<std::string>& more) {
  const TemporaryFolder folder;
  const std::string metrics = folder.file("metrics.jsonl");
  std::vector<std::string> words = {"train", "--data", data, "--metrics", metrics};
  const bool is_file = names_schedule_file(row.front().text);
  for (const SweepCell& cell : row) {
    if (cell.column == "makespan") break;
    if (cell.text.empty()) continue;                     // a parameter that the schedule lacks
    if (is_file && cell.column != "schedule") continue;  // the file has a shape
    std::string flag = "--" + cell.column;
    std::ranges::replace(flag, '_', '-');
    words.insert(words.end(), {flag, cell.text});
  }
  words.insert(words.end(), more.begin(), more.end());
  std::cerr << "$ " << as_typed(words) << "\n" << std::flush;
  const CommandResult result = run_own(words);
  if (result.exit_code != 0) {
    throw Error(fmt::format("`{}` ended with {}; the rows before it are kept", as_typed(words), result.exit_code));
  }
  const RunFigures figures = figures_of(read_run(metrics));
  return {fmt::format("{:.10g}", figures.tokens_per_second), fmt::format("{:.10g}", figures.step_seconds),
          fmt::format("{:.0f}", figures.peak_memory_bytes), fmt::format("{:.10g}", figures.final_loss)};
}

std::vector<SweepRow> with_measured(std::vector<SweepRow> rows, const SweepArguments& options,
                                    const std::vector<std::string>& more) {
  const auto before = measured_before(options.output, rows.front());
  for (const auto& [key, cells] : before) {
    if (std::ranges::find(rows, key, key_of) != rows.end()) continue;
    throw ConfigError(
        fmt::format("--output {}: has the row {}... of another sweep; give another file", options.output, key));
  }
  const auto content = [&] { return std::filesystem::exists(options.output) ? read_whole(options.output) : ""; };
  const bool is_file = !options.output.empty() && options.output != "-" &&
                       (!std::filesystem::exists(options.output) || std::filesystem::is_regular_file(options.output));
  std::string own = is_file ? content() : "";
  std::vector<SweepRow> done;
  for (SweepRow& row : rows) {
    const auto known = before.find(key_of(row));
    const auto cells = known != before.end() ? known->second : measure(row, options.train, more);
    for (std::size_t c = 0; c < kMeasured.size(); ++c) row.push_back({kMeasured[c], cells[c]});
    done.push_back(std::move(row));
    if (!is_file || known != before.end()) continue;
    if (content() != own)
      throw Error(fmt::format("--output {}: another sweep writes this file, too; give another file", options.output));
    own = as_csv(done);
    write_whole(options.output, own);
  }
  return done;
}

bool are_alternatives(const SweepRow& a, const SweepRow& b) {
  for (std::size_t c = 0; c < a.size() && a[c].column != "makespan"; ++c) {
    if ((c < 3 || is_time(a[c])) && a[c].text != b[c].text) return false;
  }
  return true;
}

bool covers(const SweepRow& a, const SweepRow& b) {
  return number_in(a, "makespan") <= number_in(b, "makespan") &&
         number_in(a, "peak_stage_units") <= number_in(b, "peak_stage_units");
}

/// Returns the Pareto front in time and memory for each schedule, D, N and times.
std::vector<SweepRow> fronts_of(const std::vector<SweepRow>& rows) {
  std::vector<SweepRow> fronts;
  for (const SweepRow& row : rows) {
    const auto replaces = [&](const SweepRow& other) {
      return &other != &row && are_alternatives(other, row) && covers(other, row) &&
             (&other < &row || !covers(row, other));
    };
    if (std::ranges::none_of(rows, replaces)) fronts.push_back(row);
  }
  return fronts;
}

std::string spoken(std::string column) {
  std::ranges::replace(column, '_', ' ');
  return column;
}

/// A front is one curve for all parameters of its points.
std::string curve_of(const SweepRow& row, const std::string& over, bool front) {
  std::string name = row.front().text;
  for (const SweepCell& cell : row) {
    if (cell.column == "makespan") break;
    if (cell.column == over || cell.text.empty() || &cell == &row.front()) continue;
    if (cell.column == "stages") name += fmt::format(", D = {}", cell.text);
    if (cell.column == "micro_batches") name += fmt::format(", N = {}", cell.text);
    if (is_time(cell)) name += fmt::format(", {} {}", spoken(cell.column), cell.text);
    if (front) continue;
    for (const ShapeAxis& axis : shape_axes()) {
      if (cell.column != axis.name || cell.text == axis.text(PipelineShape())) continue;
      name += axis.is_number() ? fmt::format(", {} {}", cell.text, axis.name) : ", " + cell.text;
    }
  }
  return name;
}

std::string drawn(const std::vector<SweepRow>& rows, const std::string& value, const std::string& over, bool front) {
  std::vector<std::string> columns;
  for (const SweepCell& cell : rows.front()) {
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
    const std::string name = curve_of(row, over, front);
    auto series = std::ranges::find(chart.series, name, &Series::name);
    if (series == chart.series.end()) {
      series = chart.series.insert(series, {.name = name, .points = {}, .style = CurveStyle::Marks});
    }
    series->points.emplace_back(number_in(row, over), number_in(row, value));
  }
  for (Series& series : chart.series) std::ranges::sort(series.points);
  return to_svg(chart);
}

void run_sweep(const SweepArguments& options, const std::vector<std::string>& more) {
  if (!options.train.empty() && options.format != Format::Csv) {
    throw ConfigError("--format json goes without --train, whose table is CSV that a later sweep reads");
  }
  if (options.chart.empty() && !(options.value.empty() && options.over.empty())) {
    throw ConfigError(
        fmt::format("{} is for --chart; give that too, or leave it out", options.value.empty() ? "--over" : "--value"));
  }
  if (options.train.empty() && !more.empty())
    throw ConfigError(fmt::format("sweep: unexpected '{}'; flags of `chimera train` go with --train", more.front()));
  if (const auto lists = options.costs.lists(); !lists.empty() && !options.train.empty()) {
    throw ConfigError(fmt::format("--train measures the times of ops, so {} cannot be a list; leave it out",
                                  lists.front()->option->get_name()));
  }
  auto rows = sweep_rows({.schedules = listed_schedules(options.schedules.empty() ? "all" : options.schedules),
                          .shape = options.shape,
                          .costs = options.costs,
                          .pairs = options.pairs,
                          .limits = options.limits.limits(),
                          .limited_by = options.limits.in_words()});
  sort_by_makespan(rows);
  if (options.pareto) rows = fronts_of(rows);
  if (!options.train.empty()) rows = with_measured(std::move(rows), options, more);
  const char* simulated = options.pareto ? "makespan" : "bubble_ratio";
  const char* usual = options.train.empty() ? simulated : "tokens_per_second";
  const std::string value = options.value.empty() ? usual : options.value;
  const std::string over =
      options.over.empty() ? (options.pareto ? "peak_stage_units" : "micro_batches") : options.over;
  const std::string picture = options.chart.empty() ? "" : drawn(rows, value, over, options.pareto);
  write_output(options.output, options.format == Format::Json ? as_json_lines(rows) : as_csv(rows));
  if (!options.chart.empty()) write_whole(options.chart, picture);
}

}  // namespace

void add_sweep(CLI::App& program, int&) {
  auto* command = program.add_subcommand("sweep", "Sweep over schedules, shapes and costs: table and chart");
  command->footer(
      "Examples:\n"
      "  chimera sweep --schedules 1f1b,chimera --stages 4,8 --micro-batches D,2D,4D --chart bubble.svg\n"
      "  chimera sweep --schedules all --stages 8 --micro-batches 8..32 --value makespan --chart makespan.svg\n"
      "  chimera sweep --stages 8 --micro-batches 16 --latency 0,0.1,0.2 --over latency --chart latency.svg\n"
      "  chimera sweep --stages 4 --micro-batches D,2D --train book.txt --steps 10 --output sweep.csv\n"
      "  chimera sweep --schedules zb-v,chimera-zb --stages 8 --micro-batches 16 --chunks 1..4 --pareto --chart "
      "memory.svg\n"
      "\nWith --train, flags that are not listed here go to `chimera train`. --output is written after each row, and a "
      "restarted sweep continues after the last row.\n"
      "\nMore: docs/sweeps.md");
  command->allow_extras();
  auto options = std::make_shared<SweepArguments>();
  begin_group(*command, heading::kSchedule);
  command->add_option("--schedules", options->schedules, "schedules: NAME,NAME, files too, or all (default all)")
      ->type_name("NAMES");
  options->shape.add_to(*command, Counts::Lists);
  options->costs.add_to(*command, Counts::Lists);
  options->pairs.add_time_to(*command);
  options->limits.add_to(*command, "schedules above the limit have no row (default: no limit)");
  begin_group(*command, heading::kRunning);
  const CLI::Option* train = add_path(*command, "--train", options->train, "also train every row on this data");
  begin_group(*command, heading::kOutput);
  CLI::Option* output =
      add_path(*command, "--output", options->output, "write the table to this file instead of standard output");
  follow_ending(*output, *add_format(*command, options->format, {Format::Csv, Format::Json}), options->format,
                {Format::Csv, Format::Json});
  command->add_flag("--pareto", options->pareto,
                    "keep only rows that no other row of the same schedule, D and N beats in both time and memory");
  CLI::Option* chart = add_path(*command, "--chart", options->chart, "write a chart to this SVG file");
  guard_outputs(*command, {output, chart}, train);
  command
      ->add_option(
          "--value", options->value,
          "column on the y axis (default bubble_ratio; makespan with --pareto, tokens_per_second with --train)")
      ->type_name("COLUMN");
  command
      ->add_option("--over", options->over,
                   "column on the x axis (default micro_batches; peak_stage_units with --pareto)")
      ->type_name("COLUMN");
  set_common_flags(*command,
                   {"--schedules", "--stages", "--micro-batches", "--chunks", "--forward", "--backward", "--latency",
                    "--costs", "--train", "--output", "--format", "--pareto", "--chart", "--value", "--over"});
  command->callback([options, command] { run_sweep(*options, command->remaining()); });
}

}  // namespace chimera::apps
