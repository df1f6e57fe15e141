#pragma once

// What commands need that start training runs. `bench` and `plan --run` compare runs as contenders, and reject wrong
// flags before they start the first; `bench --export` exports a job with the same options.

#include <string>
#include <vector>

#include "bench/contest.h"
#include "train/setup/options.h"

namespace chimera::apps {

/// Returns the options that `chimera train` reads from `words`, its flags and their values without `chimera train`.
/// Reads the file of --config, if given. Throws ConfigError if the command would reject the flags.
[[nodiscard]] TrainOptions train_options(const std::vector<std::string>& words);

/// Returns the run `chimera train WORDS`. Throws ConfigError if training would reject the flags or the files that they
/// name.
[[nodiscard]] Contender training_contender(const std::string& name, const std::vector<std::string>& words);

}  // namespace chimera::apps
