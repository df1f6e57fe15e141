// `chimera sweep`: one table from the simulator (answers/sweep_answer.h), to which --train adds what training each row
// has measured (sweep_training.h). The chart and the table are made before anything is written.

#include "answers/sweep_answer.h"
#include "commands.h"
#include "core/console.h"
#include "core/files.h"
#include "core/reject.h"
#include "flags/flag_door.h"
#include "flags/outputs.h"
#include "flags/shape.h"
#include "flags/values.h"
#include "help.h"
#include "sweep_training.h"

namespace chimera::apps {
namespace {

struct SweepArguments {
  SweepRequest request;
  std::string train;  // training data; empty: simulation only
  std::string output;
  std::string chart;
  std::string value;
  std::string over;
  Format format = Format::Text;
  CLI::Option* format_option = nullptr;

  [[nodiscard]] bool writes_file() const { return !output.empty() && output != "-"; }
  /// A file is CSV, unless --format or its ending says otherwise.
  [[nodiscard]] Format chosen_format() const {
    return writes_file() && format_option->count() == 0 && format == Format::Text ? Format::Csv : format;
  }
};

void require_fitting_flags(const SweepArguments& options, const CLI::App& command) {
  const std::vector<std::string> more = command.remaining();
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
  if (is_trained) {
    result.rows = train_rows(std::move(result.rows),
                             {.data = options.train, .flags = command.remaining(), .output = options.output});
  }
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
  command->callback([options, command] { run(*options, *command); });
}

}  // namespace chimera::apps
