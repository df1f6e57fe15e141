#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/contest.h"
#include "bench/machine_line.h"
#include "bench/random_letters.h"
#include "bench/training_run.h"
#include "commands.h"
#include "core/console.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/resident_memory.h"
#include "help.h"
#include "launch/local/launcher.h"
#include "options.h"
#include "profile/measure_grid.h"
#include "profile/profiler.h"
#include "program.h"
#include "train/loop/export_job.h"
#include "train_options.h"
#include "transport/gloo/gloo_transport.h"

namespace chimera::apps {

struct ValidationFlags {
  std::string machine = {};  // profile; empty: measured, alternating with the runs
  std::string only = {};     // only runs whose words contain this
  std::string again = {};    // earlier results to predict again; empty: measure
  std::int64_t rounds = 8;
  Format format = Format::Text;
  std::string output = {};
  std::string folder = {};  // created by the launcher for text and rendezvous of the ranks
};

/// Starts the measuring ranks; in a rank, measures. Returns the exit code.
[[nodiscard]] int run_validation(const ValidationFlags& flags, const Invocation& invocation);

namespace {

void say(const std::string& words) { messages().write(words); }

GridMeasurement measurement(const ValidationFlags& flags, const std::string& folder) {
  return {.runs = chosen_runs(flags.only),
          .data = folder + "/text.txt",
          .folder = folder,
          .rounds = flags.rounds,
          .profiles = flags.machine.empty()};
}

std::string times_file(const std::string& folder) { return folder + "/times.json"; }

void write_times(const std::string& folder, const GridTimes& times) {
  const auto texts = [](const std::vector<MachineProfile>& machines) {
    nlohmann::json list = nlohmann::json::array();
    for (const MachineProfile& machine : machines) list.push_back(to_json(machine));
    return list;
  };
  const nlohmann::json json = {
      {"seconds", times.seconds}, {"machines", texts(times.machines)}, {"on_sockets", texts(times.on_sockets)}};
  write_whole(times_file(folder), json_text(json));
}

GridTimes read_times(const std::string& folder) {
  const auto json = nlohmann::json::parse(std::ifstream(times_file(folder)));
  const auto profiles = [&](const char* name) {
    std::vector<MachineProfile> machines;
    for (const auto& machine : json.at(name))
      machines.push_back(machine_from_json(machine.get<std::string>(), "the measured profile"));
    return machines;
  };
  return {json.at("seconds").get<std::vector<std::vector<double>>>(), profiles("machines"), profiles("on_sockets")};
}

int measure_as_rank(const ValidationFlags& flags, const RankEnvironment& rank) {
  keep_freed_memory();
  at::set_num_interop_threads(1);
  at::set_num_threads(1);
  const auto transport = connect_gloo(
      {.rank = rank.rank, .world_size = rank.world_size, .rendezvous = rank.rendezvous, .groups = profile_groups()});
  const bool speaks = rank.rank == 0;
  const auto progress = [&](const std::string& words) {
    if (speaks) say(words);
  };
  const GridTimes times =
      measure_grid(measurement(flags, flags.folder), *transport, rank.rank, rank.world_size, progress);
  if (speaks) write_times(flags.folder, times);
  return static_cast<int>(ExitCode::Success);
}

void write_validation(const ValidationFlags& flags, const Validation& validation) {
  write_output(flags.output, flags.format == Format::Json ? to_json(validation) : to_text(validation));
}

}  // namespace

int run_validation(const ValidationFlags& flags, const Invocation& invocation) {
  if (invocation.rank) return measure_as_rank(flags, *invocation.rank);
  if (!flags.again.empty()) {
    write_validation(flags, predict_again(read_whole(flags.again), flags.again, predict_run));
    return static_cast<int>(ExitCode::Success);
  }
  const TemporaryFolder folder;
  const GridMeasurement grid = measurement(flags, folder.file(""));
  write_random_letters(grid.data);
  const auto measure = [&](const std::vector<GridRun>&) {
    std::vector<std::string> arguments = invocation.arguments;
    arguments.insert(arguments.end(), {"--grid-folder", grid.folder});
    if (launch({.ranks = grid_ranks(grid), .arguments = arguments, .entry = invocation.entry}) != 0)
      throw Error("the grid could not be measured");
    return read_times(grid.folder);
  };
  const ValidationOptions options{own_executable(), flags.machine, grid.data, flags.only};
  Validation validation = run_validation(options, measure, predict_run, say);
  validation.measured_on = machine_line();
  write_validation(flags, validation);
  return static_cast<int>(ExitCode::Success);
}

namespace {

struct Options {
  std::vector<std::string> schedules;
  std::vector<std::string> runs;      // flags of `chimera train` for each run
  std::vector<std::string> commands;  // NAME=COMMAND for each command
  std::string folder;                 // --export
  bool validates = false;
  ValidationFlags validation;
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

/// Later words override earlier ones. Throws ConfigError for invalid flags.
Contender training(const std::string& name, const Words& words) {
  (void)prepare_job(train_options(words));
  std::string command = shell_word(own_executable()) + " train";
  for (const std::string& word : words) command += " " + shell_word(word);
  return {name, command + " --metrics \"$CHIMERA_METRICS\""};
}

Contender foreign(const std::string& text) {
  const auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw ConfigError(fmt::format("--command {}: expected NAME=COMMAND", text));
  }
  return {text.substr(0, equals), text.substr(equals + 1)};
}

std::vector<Contender> contenders(const Options& options, const Words& shared) {
  const Words base = joined({"--steps", "8"}, shared);
  std::vector<Contender> list;
  for (const std::string& name : options.schedules) list.push_back(training(name, joined(base, {"--schedule", name})));
  for (const std::string& run : options.runs) {
    list.push_back(training(run, joined(base, CLI::detail::split_up(run))));
  }
  for (const std::string& command : options.commands) list.push_back(foreign(command));
  if (list.empty()) throw ConfigError("nothing to run; give --schedules NAME,NAME, --run FLAGS or --command NAME=LINE");
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
    const Spread ratio = speed_ratio(scores[i], scores.front());
    text +=
        fmt::format("{:<{}}  {:>9.0f}  {:>6.0f} .. {:<6.0f}  {:>8.4f}  {:>6.3f}  {:>5.3f} .. {:<5.3f}  {:>8.1e}{}\n",
                    list[i].name, width, speed.median, speed.low, speed.high, spread_of(scores[i].step_seconds).median,
                    ratio.median, ratio.low, ratio.high, scores[i].loss_difference,
                    scores[i].disturbed == 0 ? "" : fmt::format("  disturbed in {} rounds", scores[i].disturbed));
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
  return json_text(nlohmann::ordered_json{{"machine", machine_line()}, {"runs", runs}}, 1) + "\n";
}

void compare(Options options, const Words& shared) {
  options.contest.most_disturbed = options.most_disturbed / 100;
  const auto list = contenders(options, shared);
  const auto scores = run_contest(list, options.contest, [](const std::string& words) { messages().write(words); });
  write_output(options.output, options.format == Format::Json ? as_json(list, scores) : as_text(list, scores));
}

/// Measures the fixed grid, so only flags about measuring apply.
int validate_grid(const Options& options, const CLI::App& command, const Words& shared, const Invocation& invocation) {
  if (!shared.empty()) {
    throw ConfigError(fmt::format("--validate trains a grid of its own; leave out '{}'", shared.front()));
  }
  for (const char* flag :
       {"--schedules", "--run", "--command", "--export", "--skip", "--retries", "--most-disturbed"}) {
    if (command.count(flag) > 0)
      throw ConfigError(fmt::format("--validate trains a grid of its own; leave out {}", flag));
  }
  ValidationFlags validation = options.validation;
  for (const char* flag : {"--machine", "--only", "--rounds"}) {
    if (!validation.again.empty() && command.count(flag) > 0)
      throw ConfigError(fmt::format("--again predicts runs that are measured already; leave out {}", flag));
  }
  if (command.count("--rounds") > 0) validation.rounds = options.contest.rounds;
  if (validation.rounds < 2) {
    throw ConfigError(
        "--rounds must be 2 or more with --validate, which compares every other round with the rest, not 1");
  }
  if (!validation.machine.empty()) validation.machine = machine_file(validation.machine);
  validation.format = options.format;
  validation.output = options.output;
  return run_validation(validation, invocation);
}

void require_no_validation(const CLI::App& command) {
  for (const char* flag : {"--machine", "--only", "--again"}) {
    if (command.count(flag) > 0) throw ConfigError(fmt::format("{} belongs to --validate", flag));
  }
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
  command.add_option("--rounds", options.contest.rounds, "number of rounds (default 5)")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  command.add_option("--skip", options.contest.skipped, "first steps of a run that are not counted (default 2)")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber);
  command
      .add_option("--retries", options.contest.retries,
                  "maximum number of repeated runs after disturbance by other programs (default 30)")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber);
  command
      .add_option("--most-disturbed", options.most_disturbed,
                  "maximum percentage of the cores that other programs may use during a run (default 4)")
      ->type_name("X")
      ->check(CLI::Range(0.0, 100.0));
  add_path(command, "--export", options.folder,
           "write weights.safetensors, batches.safetensors and job.json to this folder, for other programs that train "
           "the same; run nothing",
           PathKind::Folder);
  begin_group(command, "Validation of the planner");
  command.add_flag("--validate", options.validates,
                   "train a fixed set of runs and compare step time and memory with the planner's predictions");
  add_path(command, "--machine", options.validation.machine,
           "machine profile for the predictions: a file, or a shipped one such as h100-80gb (default: measured between "
           "the runs)");
  command.add_option("--only", options.validation.only, "train only runs of this set that contain TEXT")
      ->type_name("TEXT");
  add_path(command, "--again", options.validation.again,
           "predict the runs of this file, which --validate --format json wrote, again; train nothing");
  command.add_option("--grid-folder", options.validation.folder)->group("");  // hidden flag for the ranks of --validate
  begin_group(command, heading::kOutput);
  add_format_and_output(command, options.format, {Format::Text, Format::Json}, options.output);
}

}  // namespace

void add_bench(CLI::App& program, const Invocation& invocation, int& exit_code) {
  auto* command = program.add_subcommand(kBench.name, kBench.description);
  command->footer(
      "Examples:\n"
      "  chimera bench --data book.txt --stages 2 --schedules none,1f1b,chimera\n"
      "  chimera bench --data book.txt --stages 4 --run '--recompute full' --run '--schedule gpipe'\n"
      "  chimera bench --data book.txt --stages 2 --schedules chimera --command 'mine=python3 mine.py exported'\n"
      "  chimera bench --data book.txt --stages 2 --steps 12 --export exported\n"
      "  chimera bench --validate\n"
      "  chimera bench --validate --machine here.json --only 'chimera D 2' --rounds 3\n"
      "\nAll other flags go to `chimera train`, for every run; --steps defaults to 8.\n"
      "\nRuns alternate in rounds, and disturbed runs are repeated. Speed is the median over the steps. `ratio` is the "
      "speed relative to the first run of the same round: median and quartiles over the rounds. `loss off` is the "
      "largest relative difference from the loss of the first run.\n"
      "\n--validate takes about 40 minutes. `error` is predicted / measured - 1 in the median round; `spread` compares "
      "the medians of odd and even rounds.\n"
      "\nMore: docs/planner.md, docs/choosing.md");
  command->allow_extras();
  auto options = std::make_shared<Options>();
  add_flags(*command, *options);
  command->callback([options, command, &invocation, &exit_code] {
    const Words shared = command->remaining();
    if (options->validates) {
      exit_code = validate_grid(*options, *command, shared, invocation);
      return;
    }
    require_no_validation(*command);
    if (options->folder.empty()) {
      compare(*options, shared);
    } else {
      for (const char* flag : {"--schedules", "--run", "--command", "--rounds", "--skip", "--retries",
                               "--most-disturbed", "--format", "--output"}) {
        if (command->count(flag) > 0) throw ConfigError(fmt::format("{}: --export runs nothing; leave one out", flag));
      }
      for (const char* name : {"weights.safetensors", "batches.safetensors", "job.json"}) {
        require_unused("--export", options->folder + "/" + name, command->count("--overwrite") > 0);
      }
      export_job(prepare_job(train_options(shared)), options->folder);
    }
    exit_code = static_cast<int>(ExitCode::Success);
  });
}

}  // namespace chimera::apps
