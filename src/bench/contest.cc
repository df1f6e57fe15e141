#include "bench/contest.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "bench/machine_line.h"
#include "core/core_use.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/shell_words.h"

// Compares training commands that alternate in rounds: A B C A B C, not A A B B C C. A machine changes its speed
// slowly, by heat or by other programs, so runs of one round can be compared, and ratios are taken within rounds.

namespace chimera {
namespace {

class Contest {
 public:
  Contest(const std::vector<Contender>& contenders, ContestOptions options,
          const std::function<void(const std::string&)>& report_progress)
      : contenders_(contenders), options_(options), say_(report_progress), scores_(contenders.size()) {}

  std::vector<Score> run() {
    for (std::int64_t round = 0; round < options_.rounds; ++round) {
      say_(fmt::format("round {}, load {}:", round + 1, load_average()));
      // All contenders run in every round, so that a slow period of the machine hits all of them.
      try {
        for (std::size_t c = 0; c < contenders_.size(); ++c) add(scores_[c], measure(contenders_[c], scores_[c]));
      } catch (...) {
        say_("\n");  // The message of the failed run begins a line
        throw;
      }
      say_("\n");
    }
    return std::move(scores_);
  }

 private:
  /// Repeats disturbed runs while retries remain.
  TrainingFigures measure(const Contender& contender, Score& score) {
    while (true) {
      const auto begin = sample_core_use();
      TrainingFigures figures = measure_once(contender);
      const double share = load_of_others_since(begin).value_or(0);
      // When no retries are left, disturbed runs count, and the score says how many. The share is of all cores, used by
      // other processes than those of the run.
      if (share <= options_.most_disturbed || options_.retries == 0) {
        score.disturbed += share > options_.most_disturbed;
        say_(fmt::format(" {:.0f}", figures.tokens_per_second));
        return figures;
      }
      --options_.retries;
      say_(fmt::format(" [{:.0f}, others {:.0f} %]", figures.tokens_per_second, 100 * share));
    }
  }

  /// Copies run at the same time, as data-parallel processes without communication would.
  TrainingFigures measure_once(const Contender& contender) {
    std::vector<TrainingRun> runs;
    for (int copy = 0; copy < contender.copies; ++copy)
      runs.emplace_back(contender.command, folder_.file(fmt::format("metrics-{}.jsonl", copy)));
    TrainingFigures sum;
    for (TrainingRun& run : runs) {
      TrainingFigures figures = run.wait(options_.skipped);
      // Speeds add up; losses and step times are those of the last copy.
      figures.tokens_per_second += sum.tokens_per_second;
      sum = std::move(figures);
    }
    return sum;
  }

  /// Compares the losses with those of the very first run: equal training must give equal losses.
  void add(Score& score, const TrainingFigures& figures) {
    score.tokens_per_second.push_back(figures.tokens_per_second);
    score.step_seconds.push_back(figures.step_seconds);
    if (losses_.empty()) losses_ = figures.losses;
    for (std::size_t step = 0; step < std::min(losses_.size(), figures.losses.size()); ++step) {
      const double difference = std::abs(figures.losses[step] - losses_[step]) / std::abs(losses_[step]);
      score.loss_difference = std::max(score.loss_difference, difference);
    }
  }

  const std::vector<Contender>& contenders_;
  ContestOptions options_;
  const std::function<void(const std::string&)>& say_;
  TemporaryFolder folder_;
  std::vector<Score> scores_;
  std::vector<double> losses_;  // losses of the first run
};

}  // namespace

TrainingRun::TrainingRun(std::string command, std::string metrics)
    : command_(std::move(command)), metrics_(std::move(metrics)), messages_(nullptr, ::pclose) {
  // A run that fails early must not leave the metrics of the one before.
  std::filesystem::remove(metrics_);
  const std::string line =
      // In this order, standard error goes to the pipe, and standard output nowhere. The line end before the brace ends
      // a comment at the end of the command.
      fmt::format("export CHIMERA_METRICS={}\n{{ {}\n}} 2>&1 >/dev/null", shell_word(metrics_), command_);
  messages_.reset(::popen(line.c_str(), "r"));
  if (!messages_) throw Error("cannot run " + command_);
}

TrainingFigures TrainingRun::wait(std::int64_t skipped) {
  std::string messages;
  // Read to the end before pclose(), or a command with many messages would block at a full pipe.
  for (int c = std::fgetc(messages_.get()); c != EOF; c = std::fgetc(messages_.get())) messages += static_cast<char>(c);
  const int status = ::pclose(messages_.release());
  const std::string failure = fmt::format("{} failed:\n{}", command_, messages);
  if (WIFEXITED(status) && WEXITSTATUS(status) == static_cast<int>(ExitCode::Usage)) throw ConfigError(failure);
  if (status != 0) throw Error(failure);
  TrainingFigures figures;
  std::vector<double> speeds;
  std::vector<double> seconds;
  std::ifstream file(metrics_);
  try {
    for (std::string line; std::getline(file, line);) {
      const auto step = read_json(line);
      figures.losses.push_back(step.at("loss").get<double>());
      // Its loss counts all the same: only the time of a first step is unusual.
      if (step.at("step").get<std::int64_t>() <= skipped) continue;
      speeds.push_back(step.at("tokens_per_second").get<double>());
      seconds.push_back(step.at("step_seconds").get<double>());
    }
  } catch (const nlohmann::json::exception& error) {
    throw Error(fmt::format("{}: its metrics cannot be read ({})", command_, error.what()));
  }
  if (speeds.empty()) throw Error(fmt::format("{} wrote no more than {} steps; give more", command_, skipped));
  figures.tokens_per_second = spread_of(std::move(speeds)).median;
  figures.step_seconds = spread_of(std::move(seconds)).median;
  return figures;
}

std::vector<Score> run_contest(const std::vector<Contender>& contenders, ContestOptions options,
                               const std::function<void(const std::string&)>& report_progress) {
  return Contest(contenders, options, report_progress).run();
}

Spread speed_ratio(const Score& score, const Score& reference) {
  std::vector<double> ratios;
  for (std::size_t r = 0; r < score.tokens_per_second.size(); ++r)
    ratios.push_back(score.tokens_per_second[r] / reference.tokens_per_second[r]);
  return spread_of(std::move(ratios));
}

}  // namespace chimera
