#pragma once

// Compares the speed of training runs on a noisy machine, for `chimera bench`. A run is a shell command whose speed and
// losses are read from its metrics: `chimera train`, or a program of another framework that writes the same JSON lines.
// A Contender is a command to compare. All contenders run once per round, so that a change of the machine's speed
// affects all of them. A run during which other programs used the cores is repeated. A Score has one value per round,
// so that ratios can compare runs of the same round.

#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>

#include "bench/statistics.h"

namespace chimera {

/// Results of a run. The first two are medians over its steps, without the first steps, which warm up memory and
/// caches.
struct TrainingFigures {
  double tokens_per_second = 0;
  double step_seconds = 0;
  std::vector<double> losses;  // [step], of all steps
};

/// A shell command that runs in the background. The constructor starts it and discards its standard output; the
/// destructor waits for its end. The environment variable CHIMERA_METRICS of the command is the path `metrics`. The
/// command must write one JSON line per step to this file, with `step` (from 1), `loss`, `step_seconds` and
/// `tokens_per_second`.
class TrainingRun {
 public:
  /// Removes an old file `metrics`. Throws Error if it cannot start a shell.
  TrainingRun(std::string command, std::string metrics);

  /// Waits for the end; call it once. Excludes the first `skipped` steps from the medians. Throws with the command's
  /// messages: ConfigError if it refuses its flags, else Error if it fails. Throws Error if its metrics cannot be read,
  /// or if it writes at most `skipped` steps.
  [[nodiscard]] TrainingFigures wait(std::int64_t skipped);

 private:
  std::string command_;
  std::string metrics_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> messages_;
};

/// A command to compare with others.
struct Contender {
  std::string name;
  std::string command;
  int copies = 1;  // simultaneous processes; tokens_per_second is the sum over them
};

/// Options of run_contest().
struct ContestOptions {
  std::int64_t rounds = 5;
  std::int64_t skipped = 2;      // first steps of each run that are not measured
  std::int64_t retries = 30;     // maximum number of repeated runs, over all contenders and rounds
  double most_disturbed = 0.04;  // maximum fraction of CPU time that other processes may use in a run, 0 to 1
};

/// Results of a contender, one value per round.
struct Score {
  std::vector<double> tokens_per_second;  // sum over copies
  std::vector<double> step_seconds;       // of the last copy
  std::int64_t disturbed = 0;             // disturbed runs that count nevertheless, because no retries were left
  // Largest relative difference |a - b| / |b| of a loss. `a` is the loss of a step in any counted run of this contender
  // (in its last copy), and `b` the loss of the same step in the first counted run of the first contender.
  double loss_difference = 0;
};

/// Runs all contenders in rounds, and returns a score per contender. Calls `report_progress` with text for a line of
/// progress: before each round, after each run, and with a line end after each round. Throws Error if a run fails.
[[nodiscard]] std::vector<Score> run_contest(const std::vector<Contender>& contenders, ContestOptions options,
                                             const std::function<void(const std::string&)>& report_progress);

/// Returns the spread of the ratios, over rounds: the tokens per second of `score` divided by those of `reference`.
[[nodiscard]] Spread speed_ratio(const Score& score, const Score& reference);

}  // namespace chimera
