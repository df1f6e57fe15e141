#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/statistics.h"
#include "bench/training_run.h"

// Compares training runs on a noisy machine: in rounds, so that a change of speed affects all, with repetition of
// disturbed runs.

namespace chimera {

struct Contender {
  std::string name;
  std::string command;
  int copies = 1;  // simultaneous processes; their speeds are added
};

struct ContestOptions {
  std::int64_t rounds = 5;
  std::int64_t skipped = 2;      // first steps of each run
  std::int64_t retries = 30;     // total number of repeated runs
  double most_disturbed = 0.04;  // accepted CPU share of other processes, 0 .. 1
};

/// Results of a contender, one value per round.
struct Score {
  std::vector<double> tokens_per_second;
  std::vector<double> step_seconds;
  std::int64_t disturbed = 0;  // disturbed rounds that count because no retries were left
  // Largest |a - b| / |b| of a step's loss a; b is the loss in the very first run
  double loss_difference = 0;
};

/// Runs all contenders in rounds. Calls `say` with progress after every run, and with a line end after every round.
/// Throws Error as TrainingRun does.
[[nodiscard]] std::vector<Score> run_contest(const std::vector<Contender>& contenders, ContestOptions options,
                                             const std::function<void(const std::string&)>& say);

/// Returns the ratios of speeds in the same round.
[[nodiscard]] Spread speed_ratio(const Score& score, const Score& reference);

}  // namespace chimera
