#pragma once

// Functions for the commands that start training runs. `chimera bench` and `chimera plan --run` compare the speed of
// several runs; each run is a Contender (bench/contest.h). Both commands check the flags of all runs before the first
// run starts. `chimera bench --export` starts no run: it writes the data and weights that train_options() describes for
// other programs.

#include "bench/contest.h"
#include "train/setup/options.h"

namespace chimera::apps {

/// Returns the options that `chimera train` reads from `words`: flags and their values, without `chimera train`. Reads
/// the file of --config, if given. Throws ConfigError if the command would reject the flags.
[[nodiscard]] TrainOptions train_options(const std::vector<std::string>& words);

/// Returns a Contender called `name` that runs `chimera train` with the flags `words`. Throws ConfigError if training
/// would reject the flags or the files that they name.
[[nodiscard]] Contender training_contender(const std::string& name, const std::vector<std::string>& words);

}  // namespace chimera::apps
