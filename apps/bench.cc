// `chimera bench`: trains in several ways, in turn, and compares speeds and losses (bench/contest.h). It knows few
// flags of its own. All others are passed on to `chimera train` as they were typed. With --export it runs nothing, but
// writes the job for another program, which then takes part as --command.

#include <algorithm>

#include "bench/contest.h"
#include "bench/machine_line.h"
#include "commands.h"
#include "core/console.h"
#include "core/counted.h"
#include "core/files.h"
#include "core/json.h"
#include "core/reject.h"
#include "flags/outputs.h"
#include "flags/values.h"
#include "help.h"
#include "train/loop/export_job.h"
#include "train/setup/prepare_job.h"
#include "train_command_line.h"

namespace chimera::apps {
namespace {

struct Options {
  std::vector<std::string> schedules;
  std::vector<std::string> runs;      // flags of `chimera train` for each run
  std::vector<std::string> commands;  // NAME=COMMAND for each command
  std::string folder;                 // --export
  ContestOptions contest;
  double most_disturbed = 4;  // per cent
  Format format = Format::Text;
  std::string output;
};

using Words = std::vector<std::string>;

Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Contender foreign(const std::string& text) {
  const auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0) reject("--command {}: expected NAME=COMMAND", text);
  return {text.substr(0, equals), text.substr(equals + 1)};
}

std::vector<Contender> contenders(const Options& options, const Words& shared) {
  // Every contender gets the shared flags first, so that its own flags may override them.
  const Words base = joined({"--steps", "8"}, shared);  // later words override earlier ones
  std::vector<Contender> list;
  for (const std::string& name : options.schedules)
    list.push_back(training_contender(name, joined(base, {"--schedule", name})));
  for (const std::string& run : options.runs)
    list.push_back(training_contender(run, joined(base, CLI::detail::split_up(run))));
  for (const std::string& command : options.commands) list.push_back(foreign(command));
  if (list.empty()) reject("nothing to run; give --schedules NAME,NAME, --run FLAGS or --command NAME=LINE");
  return list;
}

std::string as_text(const std::vector<Contender>& list, const std::vector<Score>& scores) {
  std::size_t width = 4;
  for (const Contender& contender : list) width = std::max(width, contender.name.size());
  std::string text = machine_line() + "\n";
  text += fmt::format("{:<{}}  {:>9}  {:>16}  {:>8}  {:>6}  {:>13}  {:>8}\n", "run", width, "tokens/s", "quartiles",
                      "s/step", "ratio", "quartiles", "loss off");
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Spread speed = spread_of(scores[i].tokens_per_second);
    // Ratios compare runs of the same round, which a slow change of the machine affects alike.
    const Spread ratio = speed_ratio(scores[i], scores.front());
    text += fmt::format(
        "{:<{}}  {:>9.0f}  {:>6.0f} .. {:<6.0f}  {:>8.4f}  {:>6.3f}  {:>5.3f} .. {:<5.3f}  {:>8.1e}{}\n", list[i].name,
        width, speed.median, speed.low, speed.high, spread_of(scores[i].step_seconds).median, ratio.median, ratio.low,
        ratio.high, scores[i].loss_difference,
        scores[i].disturbed == 0 ? "" : fmt::format("  disturbed in {}", counted(scores[i].disturbed, "round")));
  }
  return text;
}

std::string as_json(const std::vector<Contender>& list, const std::vector<Score>& scores) {
  nlohmann::ordered_json runs = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < list.size(); ++i) {
    runs.push_back({{"name", list[i].name},
                    {"tokens_per_second", scores[i].tokens_per_second},
                    {"step_seconds", scores[i].step_seconds},
                    {"ratio", speed_ratio(scores[i], scores.front()).median},
                    {"loss_difference", scores[i].loss_difference},
                    {"disturbed_rounds", scores[i].disturbed}});
  }
  return json_report({{"machine", machine_line()}, {"runs", runs}});
}

void compare(Options options, const Words& shared) {
  constexpr std::int64_t kMost = 1'000'000;
  require_between("--rounds", options.contest.rounds, 1, kMost);
  require_between("--skip", options.contest.skipped, 0, kMost);
  require_between("--retries", options.contest.retries, 0, kMost);
  if (options.most_disturbed > 100) reject("--most-disturbed: {} is more than 100 percent", options.most_disturbed);
  options.contest.most_disturbed = options.most_disturbed / 100;
  const auto list = contenders(options, shared);
  const auto scores = run_contest(list, options.contest, [](const std::string& words) { messages().write(words); });
  write_output(options.output, options.format == Format::Json ? as_json(list, scores) : as_text(list, scores),
               options.format);
}

void add_flags(CLI::App& command, Options& options) {
  begin_group(command, heading::kRunning);
  command.add_option("--schedules", options.schedules, "train with each of these schedules; none: unpipelined")
      ->delimiter(',')
      ->type_name("NAME,NAME");
  command.add_option("--run", options.runs, "also run `chimera train` with these flags; repeatable")
      ->type_name("FLAGS")
      ->take_all();
  command
      .add_option("--command", options.commands,
                  "also run this shell line, which trains and writes one JSON object per step (`step`, `loss`, "
                  "`step_seconds`, `tokens_per_second`) to $CHIMERA_METRICS; repeatable")
      ->type_name("NAME=LINE")
      ->take_all();
  begin_group(command, heading::kMeasuring);
  add_count(command, "--rounds", options.contest.rounds, "number of rounds (default 5)");
  add_count(command, "--skip", options.contest.skipped, "first steps of a run that are not counted (default 2)");
  add_count(command, "--retries", options.contest.retries,
            "maximum number of repeated runs after disturbance by other programs (default 30)");
  add_number(command, "--most-disturbed", options.most_disturbed,
             "maximum percentage of the cores that other programs may use during a run (default 4)");
  add_path(command, "--export", options.folder,
           "write weights.safetensors, batches.safetensors and job.json to this folder, for other programs that train "
           "the same; run nothing",
           PathKind::Folder);
  add_format_and_output(command, options.format, {Format::Text, Format::Json}, options.output);
}

}  // namespace

void add_bench(CLI::App& program, const Invocation&, int&) {
  auto* command = program.add_subcommand(kBench.name, kBench.description);
  command->footer(
      "Examples:\n"
      "  chimera bench --data book.txt --stages 2 --schedules none,1f1b,chimera\n"
      "  chimera bench --data book.txt --stages 4 --run '--recompute full' --run '--schedule gpipe'\n"
      "  chimera bench --data book.txt --stages 2 --schedules chimera --command 'mine=python3 mine.py exported'\n"
      "  chimera bench --data book.txt --stages 2 --steps 12 --export exported\n"
      "\nAll other flags go to `chimera train`, for every run; --steps defaults to 8.\n"
      "\nRuns alternate in rounds, and disturbed runs are repeated. Speed is the median over the steps. `ratio` is the "
      "speed relative to the first run of the same round: median and quartiles over the rounds. `loss off` is the "
      "largest relative difference from the loss of the first run.\n"
      "\nMore: docs/planner.md, docs/choosing.md");
  // Unknown flags are flags of `chimera train`, which checks them.
  command->allow_extras();
  auto options = std::make_shared<Options>();
  add_flags(*command, *options);
  command->callback([options, command] {
    const Words shared = command->remaining();
    if (options->folder.empty()) {
      compare(*options, shared);
    } else {
      // --export writes a job for other programs; flags of the comparison would have no effect.
      for (const char* flag : {"--schedules", "--run", "--command", "--rounds", "--skip", "--retries",
                               "--most-disturbed", "--format", "--output"})
        if (command->count(flag) > 0) reject("{}: --export runs nothing; leave one out", flag);
      for (const char* name : {"weights.safetensors", "batches.safetensors", "job.json"})
        require_unused("--export", options->folder + "/" + name, command->count("--overwrite") > 0);
      export_job(prepare_job(train_options(shared)), options->folder);
    }
  });
}

}  // namespace chimera::apps
