// Tokens a second of `chimera train` on two processes, beside one.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <torch/version.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/error.h"
#include "generate/registry.h"
#include "launch/launcher.h"
#include "simulate/simulate.h"
#include "support/disturbance.h"
#include "support/machine.h"
#include "support/statistics.h"
#include "support/workspace.h"

namespace chimera::benchmarks {
namespace {

constexpr std::int64_t kStages = 2;
constexpr std::int64_t kMicroBatches = 8;
constexpr double kRequired = 1.8;        // chimera, times one process
constexpr double kMostDisturbed = 0.04;  // share of the cores that others may take during a run

struct Options {
  std::string program = std::filesystem::path(own_executable()).parent_path().parent_path() / "chimera";
  std::string data;  // empty: text made here
  int rounds = 7;
  int steps = 6;
  int skipped = 2;   // first steps of a run: first touches of memory and caches
  int retries = 60;  // of disturbed runs, in all
};

std::string shell_word(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? "'\\''" : std::string(1, c);
  return result + "'";
}

/// `chimera train` under way.
class Run {
 public:
  Run(const Options& options, const std::string& schedule, std::string metrics) : metrics_(std::move(metrics)) {
    command_ = fmt::format(
        "{} train --model gpt2-mini --layers 8 --hidden 256 --heads 4 --dtype float32 --threads 1 --schedule {} "
        "--stages {} --micro-batches {} --micro-batch-size 4 --sequence 128 --steps {} --data {} --metrics {}",
        shell_word(options.program), schedule, kStages, kMicroBatches, options.steps, shell_word(options.data),
        shell_word(metrics_));
    messages_ = ::popen((command_ + " 2>&1 >/dev/null").c_str(), "r");
    if (messages_ == nullptr) throw Error("cannot run " + command_);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run() {
    if (messages_ != nullptr) ::pclose(messages_);
  }

  /// Waits for the end and returns the median over the steps after the first few. Throws Error where the run failed.
  [[nodiscard]] double tokens_per_second(int skipped) {
    std::string messages;
    for (int c = std::fgetc(messages_); c != EOF; c = std::fgetc(messages_)) messages += static_cast<char>(c);
    if (::pclose(std::exchange(messages_, nullptr)) != 0) throw Error(command_ + " failed:\n" + messages);
    std::vector<double> speeds;
    std::ifstream file(metrics_);
    for (std::string line; std::getline(file, line);) {
      const auto step = nlohmann::json::parse(line);
      if (step.at("step").get<int>() > skipped) speeds.push_back(step.at("tokens_per_second").get<double>());
    }
    if (speeds.empty()) throw Error(command_ + " wrote no metrics; try more --steps");
    return spread_of(speeds).median;
  }

 private:
  std::string metrics_;
  std::string command_;
  std::FILE* messages_ = nullptr;
};

/// Most that a schedule can gain over one process: by simulate() at B = 2 F, messages and sums for nothing.
double ceiling(const std::string& schedule) {
  const Schedule generated = find_generator(schedule).generate({kStages, kMicroBatches});
  const StageCosts costs{.forward = 1, .backward = 2};
  const auto work = static_cast<double>(kStages * kMicroBatches) * (costs.forward + costs.backward);
  return work / simulate(generated, CostModel::uniform(generated, costs)).makespan;
}

/// One line of the table: what ran, and its tokens a second in each round.
struct Row {
  std::string name;
  std::string schedule;
  int copies = 1;      // of the whole program, at the same time
  double ceiling = 1;  // times one process
  std::vector<double> speeds = {};
};

double measure_once(const Row& row, const Options& options, const Workspace& workspace) {
  std::vector<std::unique_ptr<Run>> runs;
  for (int copy = 0; copy < row.copies; ++copy) {
    runs.push_back(std::make_unique<Run>(options, row.schedule, workspace.file(fmt::format("metrics-{}", copy))));
  }
  double sum = 0;
  for (const auto& run : runs) sum += run->tokens_per_second(options.skipped);
  return sum;
}

/// Runs until the machine was left alone meanwhile, as long as there are retries.
double measure(const Row& row, Options& options, const Workspace& workspace) {
  while (true) {
    const Disturbance others;
    const double speed = measure_once(row, options, workspace);
    const double share = others.share();
    if (share <= kMostDisturbed) return speed;
    fmt::print(" [{:.0f}, others {:.0f} %]", speed, 100 * share);
    std::fflush(stdout);
    if (options.retries == 0) return speed;
    --options.retries;
  }
}

/// Each round's speed over that of one process in the same round.
Spread ratio(const Row& row, const Row& one) {
  std::vector<double> ratios;
  for (std::size_t r = 0; r < row.speeds.size(); ++r) ratios.push_back(row.speeds[r] / one.speeds[r]);
  return spread_of(ratios);
}

void print_table(const std::vector<Row>& rows) {
  fmt::print("{:<28} {:>9} {:>17} {:>8} {:>15} {:>8} {:>11}\n", "", "tokens/s", "quartiles", "times 1", "quartiles",
             "ceiling", "of ceiling");
  for (const Row& row : rows) {
    const Spread speed = spread_of(row.speeds);
    const Spread times = ratio(row, rows.front());
    fmt::print("{:<28} {:>9.0f} {:>7.0f} .. {:<6.0f} {:>8.2f} {:>6.2f} .. {:<5.2f} {:>8.2f} {:>9.0f} %\n", row.name,
               speed.median, speed.low, speed.high, times.median, times.low, times.high, row.ceiling,
               100 * times.median / row.ceiling);
  }
}

void run_all(Options options) {
  const Workspace workspace("throughput");
  if (options.data.empty()) write_text(options.data = workspace.file("text"));
  std::vector<Row> rows = {{"one process", "none"},
                           {"chimera, two processes", "chimera", 1, ceiling("chimera")},
                           {"1f1b, two processes", "1f1b", 1, ceiling("1f1b")},
                           {"two runs of one process", "none", 2, 2}};
  fmt::print("Tokens per second of training, one thread a process\n{}\n", machine_line("LibTorch " TORCH_VERSION));
  fmt::print(
      "8 layers of 256, sequence 128, micro-batches of 4, D = {}, N = {}, float32; {} interleaved rounds of {} "
      "steps, the first {} of each left out\n",
      kStages, kMicroBatches, options.rounds, options.steps, options.skipped);
  fmt::print("in brackets: runs during which others took over {:.0f} % of the cores, repeated up to {} times in all\n",
             100 * kMostDisturbed, options.retries);
  for (int round = 0; round < options.rounds; ++round) {
    fmt::print("round {}, load {}:", round + 1, load());
    for (Row& row : rows) {
      row.speeds.push_back(measure(row, options, workspace));
      fmt::print(" {:.0f}", row.speeds.back());
      std::fflush(stdout);
    }
    fmt::print("\n");
  }
  print_table(rows);
  const double reached = ratio(rows[1], rows[0]).median;
  fmt::print("chimera: {:.2f} times one process; required: at least {:.1f}: {}\n\n", reached, kRequired,
             reached >= kRequired ? "met" : "NOT MET");
}

}  // namespace
}  // namespace chimera::benchmarks

int main(int argc, char** argv) {
  chimera::benchmarks::Options options;
  CLI::App app("Tokens a second of `chimera train` on two processes, beside one");
  app.add_option("--chimera", options.program, "the program to run")->capture_default_str();
  app.add_option("--data", options.data, "a UTF-8 text file (default: random words)");
  app.add_option("--rounds", options.rounds, "how often each is run")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--steps", options.steps, "of each run, the first two for warming up")
      ->capture_default_str()
      ->check(CLI::Range(3, 1000));
  app.add_option("--retries", options.retries, "of runs that others disturbed, in all")
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
