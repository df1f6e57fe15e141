#pragma once

#include <string>
#include <vector>

#include "train/setup/options.h"

namespace chimera::apps {

/// Parses `words` as `chimera train` does. Throws the same ConfigErrors.
[[nodiscard]] TrainOptions train_options(const std::vector<std::string>& words);

}  // namespace chimera::apps
