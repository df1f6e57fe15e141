#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/statistics.h"
#include "bench/training_run.h"

// Training runs compared on a machine that is never quite quiet: in rounds, one after the other, so that a change of
// its speed meets all alike, and repeated where others took too much of it.

namespace chimera {

/// One line of the table.
struct Contender {
  std::string name;
  std::string command;  // as TrainingRun runs it
  int copies = 1;       // of the command, at the same time; their speeds are added
};

struct ContestOptions {
  std::int64_t rounds = 5;
  std::int64_t skipped = 2;      // first steps of each run
  std::int64_t retries = 30;     // of disturbed runs, in all
  double most_disturbed = 0.04;  // share of the cores, 0 .. 1, that others may take during a run that counts
};

/// What a contender reached, one value a round.
struct Score {
  std::vector<double> tokens_per_second;
  std::vector<double> step_seconds;
  std::int64_t disturbed = 0;  // rounds that count although others took too much: no retries were left
  double loss_difference = 0;  // largest |a - b| / |b| of a step's loss a beside the first contender's b
};

/// Runs all contenders in rounds and returns their scores. `say` gets a few words after every run, and a line end after
/// every round. Throws Error as TrainingRun does.
[[nodiscard]] std::vector<Score> run_contest(const std::vector<Contender>& contenders, ContestOptions options,
                                             const std::function<void(const std::string&)>& say);

/// Each round's speed over that of `reference` in the same round.
[[nodiscard]] Spread speed_ratio(const Score& score, const Score& reference);

}  // namespace chimera
