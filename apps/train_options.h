#pragma once

// Parses the flags of `chimera train` for commands that start training runs. `bench` and `plan --run` call it to reject
// wrong flags before they start the first run; `bench --export` exports a job with these options.

#include <string>
#include <vector>

#include "train/setup/options.h"

namespace chimera::apps {

/// Returns the options that `chimera train` reads from `words`, its flags and their values without `chimera train`.
/// Reads the file of --config, if given. Throws ConfigError if the command would reject the flags.
[[nodiscard]] TrainOptions train_options(const std::vector<std::string>& words);

}  // namespace chimera::apps
