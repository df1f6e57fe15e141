// `chimera sweep`: one table from the simulator (answers/sweep_answer.h), to which --train adds what training each row
// has measured (train_rows()). The chart and the table are made before anything is written.

// With --train, each row is trained in a process of its own, and the table is written after each. The table is also the
// memory of an interrupted sweep: rows in it are not trained again. So it must be certain that a row there is of this
// sweep: the columns, the row's inputs, and a hash of data and flags have to agree.

#include <fmt/ranges.h>
#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "answers/schedule_request.h"
#include "answers/sweep_answer.h"
#include "commands.h"
#include "core/console.h"
#include "core/crc32c.h"
#include "core/files.h"
#include "core/mapped.h"
#include "core/reject.h"
#include "flags/files.h"
#include "flags/flag_door.h"
#include "flags/outputs.h"
#include "flags/values.h"
#include "help.h"
#include "program.h"
#include "telemetry/run_history.h"

namespace chimera::apps {
namespace {

struct SweepArguments : RequestArguments<SweepRequest> {
  std::string train;               // value of `train --data`; empty: simulation only
  std::vector<std::string> flags;  // further flags of `train`
  std::string chart;
  std::string value;
  std::string over;
  CLI::Option* format_option = nullptr;

  [[nodiscard]] bool writes_file() const { return !output.empty() && output != "-"; }
  /// A file is CSV, unless --format or its ending says otherwise.
  [[nodiscard]] Format chosen_format() const {
    return writes_file() && format_option->count() == 0 && format == Format::Text ? Format::Csv : format;
  }
};

using Cells = std::vector<std::string>;

/// A row in the table without what was measured.
std::string key_of(const SweepRow& row) {
  return fmt::format("{},", fmt::join(mapped(row.inputs(), &SweepCell::text), ","));
}

/// Returns the measured cells by key. Throws ConfigError if the file has other columns.
std::map<std::string, Cells> read_measured(const std::string& path, const SweepRow& like) {
  std::map<std::string, Cells> found;
  const std::string text = is_file(path) ? read_whole(path) : "";
  if (text.empty()) return found;
  std::vector<std::string> columns = mapped(like.cells, &SweepCell::column);
  columns.insert(columns.end(), kMeasuredColumns.begin(), kMeasuredColumns.end());
  std::istringstream lines(text.substr(0, text.rfind('\n') + 1));  // The last line may be cut
  std::string line;
  std::getline(lines, line);
  if (line != fmt::format("{}", fmt::join(columns, ",")))
    reject("--output {}: exists and is not a table of this sweep; give another file", path);
  while (std::getline(lines, line)) {
    const auto parts = split_at_commas(line);
    const Cells cells(parts.begin(), parts.end());
    // A line that was cut is trained again.
    if (cells.size() != columns.size()) continue;
    const std::span inputs = std::span(cells).first(like.inputs().size());
    const std::span measured = std::span(cells).last(kMeasuredColumns.size());
    found[fmt::format("{},", fmt::join(inputs, ","))] = {measured.begin(), measured.end()};
  }
  return found;
}

/// A loss may be `nan`, and a table from a file may hold anything.
SweepCell measured_cell(const char* column, const std::string& text) {
  SweepCell cell{column, text};
  cell.number = parse_number<double>(text).value_or(cell.number);
  return cell;
}

/// Returns size and hash of a file; empty if `path` is no file. Of a large file, only the beginning is hashed.
std::string content_of(const std::string& path) {
  if (!is_file(path)) return "";
  constexpr std::streamsize kHashedBytes = 16 << 20;
  std::string head(kHashedBytes, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(head.data(), kHashedBytes);
  head.resize(static_cast<std::size_t>(file.gcount()));
  return fmt::format(" {} {:08x}", std::filesystem::file_size(path), crc32c(head));
}

/// Rows of another model, text, schedule or length must not be taken for those of this sweep.
std::string run_of(const SweepArguments& options, const SweepRow& row) {
  // Files of other flags may be outputs, which differ after each row.
  const std::set<std::string> inputs = {"--config", "--data",     "--from",      "--model",
                                        "--recipe", "--schedule", "--tokenizer", "--validation"};
  std::istringstream data(options.train);  // A mixture is `0.7:a 0.3:b`
  std::vector<std::string> words = {"--schedule", row.schedule(), "--data", options.train};
  words.insert(words.end(), std::istream_iterator<std::string>(data), {});
  words.insert(words.end(), options.flags.begin(), options.flags.end());
  std::string text, flag;
  for (const std::string& word : words) {
    text += " " + word;
    if (word.starts_with("--")) flag = word.substr(0, word.find('='));
    const std::string name = word.substr(word.find_first_of("=:") + 1);
    if (inputs.contains(flag)) text += content_of(name) + content_of(name + ".bin");
  }
  return fmt::format("{:08x}", crc32c(text));
}

Cells train_row(const SweepRow& row, const SweepArguments& options) {
  // The metrics are read and then removed.
  const TemporaryFolder folder;
  const std::string metrics = folder.file("metrics.jsonl");
  std::vector<std::string> words = {"train", "--data", options.train, "--metrics", metrics};
  const bool is_file = names_schedule_file(row.schedule());
  for (const SweepCell& cell : row.inputs()) {
    if (cell.text.empty()) continue;
    if (is_file && cell.column != "schedule") continue;  // the file has a shape
    // A column has the name of the flag that it came from: micro_batches is --micro-batches.
    std::string flag = "--" + cell.column;
    std::ranges::replace(flag, '_', '-');
    words.insert(words.end(), {flag, cell.text});
  }
  // Last, because later flags override earlier ones.
  words.insert(words.end(), options.flags.begin(), options.flags.end());
  // The command as typed, so that a user can repeat one row.
  std::cerr << "$ " << shell_command(words) << "\n" << std::flush;
  const CommandResult result = run_this_program(words);
  if (result.exit_code != 0)
    throw Error(fmt::format("`{}` ended with {}; the rows before it are kept", shell_command(words), result.exit_code));
  const RunResults figures = summarize_run(read_run(metrics));
  return {fmt::format("{:.10g}", figures.tokens_per_second), fmt::format("{:.10g}", figures.step_seconds),
          fmt::format("{:.0f}", figures.peak_memory_bytes), fmt::format("{:.10g}", figures.final_loss),
          run_of(options, row)};
}

/// Trains each row that `output` does not already contain, and returns all rows with the columns of kMeasuredColumns.
/// Throws ConfigError if the existing `output` is not a table of these rows, and Error if a training run fails or
/// another process writes `output`.
std::vector<SweepRow> train_rows(std::vector<SweepRow> rows, const SweepArguments& options) {
  const std::string path = options.writes_file() ? options.output : "";
  const auto before = read_measured(path, rows.front());
  for (const auto& [key, cells] : before) {
    // A row of another sweep would be lost when the file is replaced.
    const auto row = std::ranges::find(rows, key, key_of);
    if (row == rows.end()) reject("--output {}: has the row {}... of another sweep; give another file", path, key);
    if (cells.back() == run_of(options, *row)) continue;
    reject("--output {}: its rows are of other data or flags of `train`; give another file", path);
  }
  const auto content = [&] { return is_file(path) ? read_whole(path) : ""; };
  const bool has_table = !path.empty() && (is_file(path) || !path_exists(path));
  std::string own = content();
  std::vector<SweepRow> done;
  for (SweepRow& row : rows) {
    const auto known = before.find(key_of(row));
    const Cells cells = known != before.end() ? known->second : train_row(row, options);
    for (std::size_t c = 0; c < kMeasuredColumns.size(); ++c)
      row.cells.push_back(measured_cell(kMeasuredColumns[c], cells[c]));
    done.push_back(std::move(row));
    if (!has_table || known != before.end()) continue;
    // Rows of two sweeps in one file would be mixed. The file is replaced as a whole, so a change since the last row
    // comes from another process.
    if (content() != own)
      throw Error(fmt::format("--output {}: another sweep writes this file, too; give another file", path));
    own = to_csv(done);
    write_whole(path, own);
  }
  return done;
}

void require_fitting_flags(const SweepArguments& options, const CLI::App& command) {
  const std::vector<std::string>& more = options.flags;
  require_effect(command, {"--value", "--over"}, !options.chart.empty(), "--chart");
  const bool names_schedules = !more.empty() && (more.front() == "--schedule" || !more.front().starts_with("-"));
  if (names_schedules) reject("sweep: unexpected '{}'; --schedules NAME,NAME names schedules", more.front());
  // Without --train, an unknown word is an error here, as for every other command.
  if (options.train.empty()) {
    if (more.empty()) return;
    reject("sweep: unexpected '{}'; flags of `chimera train` go with --train", more.front());
  }
  const Format format = options.chosen_format();
  if (format == Format::Json || (format == Format::Text && options.writes_file()))
    reject("--format {} goes without --train, whose table is CSV that a later sweep reads", chimera::to_text(format));
  if (const auto& lists = options.request.costs.lists; !lists.empty()) {
    reject("--train measures the times of ops, so {} cannot be a list; leave it out",
           Field{lists.front().column}.flag_name());
  }
  if (options.request.pairs.choice != PairChoice::Own)
    reject("--pairs is for the simulation only; leave it out with --train, which has --overlap-pairs");
}

std::string print_rows(const SweepResult& result, Format format) {
  print_notes(result.notes);
  if (format == Format::Text) return to_text(result);
  for (const LeftOutSchedule& each : result.left_out) print_message(to_text(each));
  return format == Format::Json ? to_json_lines(result.rows) : to_csv(result.rows);
}

void run(const SweepArguments& options, const CLI::App& command) {
  if (options.train.starts_with("--"))
    reject("--train {}: expected data, as for `chimera train --data`", options.train);
  require_fitting_flags(options, command);
  const bool is_trained = !options.train.empty();
  // The front is taken before training, which would else train rows that it leaves out.
  SweepResult result = answer(options.request);
  if (is_trained) result.rows = train_rows(std::move(result.rows), options);
  // Drawn before the table is written, so that an unknown column fails before any output.
  std::string chart;
  if (!options.chart.empty()) {
    const char* usual = is_trained ? "tokens_per_second" : options.request.pareto ? "makespan" : "bubble_ratio";
    // A front shows time against memory, other sweeps show a figure against N.
    const std::string over = options.request.pareto ? "peak_stage_units" : "micro_batches";
    chart = draw_chart(result.rows, options.value.empty() ? usual : options.value,
                       options.over.empty() ? over : options.over,
                       options.request.pareto || options.request.schedules.empty());
  }
  write_output(options.output, print_rows(result, options.chosen_format()), options.chosen_format());
  if (!options.chart.empty()) write_whole(options.chart, chart);
}

}  // namespace

void add_sweep(CLI::App& program, const Invocation&, int&) {
  auto* command = program.add_subcommand("sweep", "Rank schedules for given shapes, costs and limits: table and chart");
  command->footer(
      "Examples:\n"
      "  chimera sweep --stages 8 --micro-batches 16\n"
      "  chimera sweep --stages 8 --micro-batches 16 --input-gradient 1.3 --weight-gradient 0.7 --max-in-flight 9\n"
      "  chimera sweep --schedules 1f1b,chimera --stages 4,8 --micro-batches D,2D,4D --chart bubble.svg\n"
      "  chimera sweep --stages 8 --micro-batches 16 --latency 0,0.1,0.2 --over latency --chart latency.svg\n"
      "  chimera sweep --stages 4 --micro-batches D,2D --train book.txt --steps 10 --output sweep.csv\n"
      "  chimera sweep --schedules zb-v,chimera-zb --stages 8 --micro-batches 16 --chunks 1..4 --pareto --chart "
      "memory.svg\n"
      "\nWithout --schedules, every synchronous schedule is tried with all useful values of the parameters that no "
      "flag gives, and has one row, with its best parameters. `chimera plan` also chooses the number of stages, for a "
      "model and a machine.\n"
      "\nA LIST is 4,8,16 or 1..4; --micro-batches also accepts multiples of the stages, such as D,2D,4D or D..4D. "
      "Rows of equal D, N and times are sorted by makespan.\n"
      "\nWith --train, flags that are not listed here go to `chimera train`. --output is CSV that is written after "
      "each row, and a restarted sweep continues after the last row.\n"
      "\nMore: docs/sweeps.md");
  command->allow_extras();
  auto options = std::make_shared<SweepArguments>();
  options->request.load = read_schedule;
  options->request.costs.refuses_unused = true;
  add_flags(*command, options->request);
  begin_group(*command, heading::kRunning);
  const CLI::Option* train = add_path(*command, "--train", options->train, "also train every row on this data");
  begin_group(*command, heading::kOutput);
  CLI::Option* output = add_path(*command, "--output", options->output,
                                 "write the table, as CSV or .json, to this file instead of standard output");
  const std::vector<Format> formats = {Format::Text, Format::Csv, Format::Json};
  options->format_option = add_format(*command, options->format, formats);
  options->format_option->description("output format; json has an object per line (default text, or csv for --output)");
  set_format_by_extension(*output, *options->format_option, options->format, formats);
  CLI::Option* chart = add_path(*command, "--chart", options->chart, "write a chart to this SVG file");
  add_output_checks(*command, {output, chart}, train);
  add_string(*command, "--value", options->value, "COLUMN",
             "column on the y axis (default bubble_ratio; makespan with --pareto, tokens_per_second with --train)");
  add_string(*command, "--over", options->over, "COLUMN",
             "column on the x axis (default micro_batches; peak_stage_units with --pareto)");
  set_common_flags(*command, {"--schedules", "--stages", "--micro-batches", "--chunks", "--forward", "--backward",
                              "--latency", "--costs", "--max-in-flight", "--train", "--output", "--format", "--chart"});
  command->callback([options, command] {
    options->flags = command->remaining();
    run(*options, *command);
  });
}

}  // namespace chimera::apps
