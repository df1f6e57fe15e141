#pragma once
// The flags of `chimera train` for subcommands that start or prepare training runs.

#include <string>
#include <vector>

#include "train/setup/options.h"

namespace chimera::apps {

/// What the words of a command line ask `chimera train` for. Throws ConfigError as the command itself.
[[nodiscard]] TrainOptions train_options(const std::vector<std::string>& words);

}  // namespace chimera::apps
