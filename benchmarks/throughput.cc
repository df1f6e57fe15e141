// Tokens per second of `chimera train` on two processes, compared with one.

#include <fmt/format.h>
#include <torch/version.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/contest.h"
#include "bench/machine_line.h"
#include "bench/random_letters.h"
#include "core/files.h"
#include "core/shell_words.h"
#include "generate/registry.h"
#include "launch/local/launcher.h"
#include "simulate/simulate.h"

namespace chimera::benchmarks {
namespace {

constexpr std::int64_t kStages = 2;

struct Options {
  std::string program = std::filesystem::path(own_executable()).parent_path().parent_path() / "chimera";
  std::string data;  // empty: generated text
  int steps = 6;
  ContestOptions contest{.rounds = 7, .retries = 60};
};

/// Required speed of the fastest schedule on two processes, relative to one process.
struct Goal {
  std::int64_t micro_batches;
  double required;
};
constexpr Goal kGoals[] = {{2, 2 * 0.88}, {8, 2 * 0.95}};

/// Largest possible gain of a schedule over one process: simulate() at B = 2 F with free messages and all-reduces.
double ceiling(const std::string& schedule, std::int64_t micro_batches) {
  const Schedule generated = find_generator(schedule).generate({kStages, micro_batches});
  const StageCosts costs{.forward = 1, .backward = 2};
  const auto work = static_cast<double>(kStages * micro_batches) * (costs.forward + costs.backward);
  return work / simulate(generated, CostModel::uniform(generated, costs)).makespan;
}

struct Row {
  Contender contender;
  double ceiling = 1;  // relative to one process
};

Row row(const Options& options, const std::string& name, const std::string& schedule, std::int64_t micro_batches) {
  return {{name, fmt::format("{} train --model gpt2-mini --layers 8 --hidden 256 --heads 4 --dtype float32 --threads 1 "
                             "--schedule {} --stages {} --micro-batches {} --micro-batch-size 4 --sequence 128 "
                             "--steps {} --data {} --metrics \"$CHIMERA_METRICS\"",
                             shell_word(options.program), schedule, kStages, micro_batches, options.steps,
                             shell_word(options.data))},
          schedule == "none" ? 1 : ceiling(schedule, micro_batches)};
}

void print_table(const std::vector<Row>& rows, const std::vector<Score>& scores) {
  fmt::print("{:<28} {:>9} {:>17} {:>8} {:>15} {:>8} {:>11}\n", "", "tokens/s", "quartiles", "times 1", "quartiles",
             "ceiling", "of ceiling");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Spread speed = spread_of(scores[i].tokens_per_second);
    const Spread times = speed_ratio(scores[i], scores.front());
    fmt::print("{:<28} {:>9.0f} {:>7.0f} .. {:<6.0f} {:>8.2f} {:>6.2f} .. {:<5.2f} {:>8.2f} {:>9.0f} %\n",
               rows[i].contender.name, speed.median, speed.low, speed.high, times.median, times.low, times.high,
               rows[i].ceiling, 100 * times.median / rows[i].ceiling);
  }
}

void run_goal(const Goal& goal, const Options& options) {
  std::vector<Row> rows = {row(options, "one process", "none", goal.micro_batches),
                           row(options, "chimera, two processes", "chimera", goal.micro_batches),
                           row(options, "1f1b, two processes", "1f1b", goal.micro_batches),
                           row(options, "two runs of one process", "none", goal.micro_batches)};
  rows.back().contender.copies = 2;
  rows.back().ceiling = 2;
  fmt::print(
      "8 layers of 256, sequence 128, micro-batches of 4, D = {}, N = {}, float32; {} interleaved rounds of {} "
      "steps, the first {} of each left out\n",
      kStages, goal.micro_batches, options.contest.rounds, options.steps, options.contest.skipped);
  std::vector<Contender> contenders;
  for (const Row& each : rows) contenders.push_back(each.contender);
  const auto scores = run_contest(contenders, options.contest, [](const std::string& words) {
    fmt::print("{}", words);
    std::fflush(stdout);
  });
  print_table(rows, scores);
  const double reached = speed_ratio(scores[1], scores[0]).median;
  fmt::print("chimera: {:.2f} times one process; required: at least {:.2f}: {}\n\n", reached, goal.required,
             reached >= goal.required ? "met" : "NOT MET");
}

void run_all(Options options) {
  const TemporaryFolder folder;
  if (options.data.empty()) write_random_letters(options.data = folder.file("text"));
  fmt::print("Tokens per second of training, one thread a process\n{}\n", machine_line("LibTorch " TORCH_VERSION));
  fmt::print("in brackets: runs during which others took over {:.0f} % of the cores, repeated up to {} times in all\n",
             100 * options.contest.most_disturbed, options.contest.retries);
  for (const Goal& goal : kGoals) run_goal(goal, options);
}

}  // namespace
}  // namespace chimera::benchmarks

int main(int argc, char** argv) {
  chimera::benchmarks::Options options;
  CLI::App app("Tokens a second of `chimera train` on two processes, beside one");
  app.add_option("--chimera", options.program, "the program to run")->capture_default_str();
  app.add_option("--data", options.data, "a UTF-8 text file (default: random words)");
  app.add_option("--rounds", options.contest.rounds, "how often each is run")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--steps", options.steps, "of each run, the first two for warming up")
      ->capture_default_str()
      ->check(CLI::Range(3, 1000));
  app.add_option("--retries", options.contest.retries, "of runs that others disturbed, in all")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  CLI11_PARSE(app, argc, argv);
  try {
    run_all(options);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "throughput: {}\n", error.what());
    return 1;
  }
}
