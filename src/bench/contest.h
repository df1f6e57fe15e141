#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/statistics.h"
#include "bench/training_run.h"

// Compares the speed of training runs on a noisy machine, for `chimera bench`. Contenders run in rounds, so that a
// change of the machine's speed affects all of them. A run during which other programs used the cores is repeated.
// Scores are medians over rounds, and ratios compare runs of the same round.

namespace chimera {

struct Contender {
  std::string name;
  std::string command;
  int copies = 1;  // simultaneous processes; tokens_per_second is the sum over them
};

struct ContestOptions {
  std::int64_t rounds = 5;
  std::int64_t skipped = 2;      // first steps of each run that are not measured
  std::int64_t retries = 30;     // maximum number of repeated runs, over all contenders and rounds
  double most_disturbed = 0.04;  // maximum share of CPU time that other processes may take in a run, 0 to 1
};

/// Results of a contender, one value per round.
struct Score {
  std::vector<double> tokens_per_second;
  std::vector<double> step_seconds;
  std::int64_t disturbed = 0;  // rounds that were disturbed and count because no retries were left
  // Largest |a - b| / |b|, for the losses a of all runs and b of the very first run at the same step
  double loss_difference = 0;
};

/// Runs all contenders in rounds. Calls `say` with progress before each round and after each run, and with a line end
/// after each round. Throws Error if a run fails.
[[nodiscard]] std::vector<Score> run_contest(const std::vector<Contender>& contenders, ContestOptions options,
                                             const std::function<void(const std::string&)>& say);

/// Returns the spread of the ratios of both speeds in the same round.
[[nodiscard]] Spread speed_ratio(const Score& score, const Score& reference);

}  // namespace chimera
