#pragma once

#include <string>
#include <vector>

#include "train/setup/options.h"

namespace chimera::apps {

/// Throws the ConfigErrors of `chimera train`.
[[nodiscard]] TrainOptions train_options(const std::vector<std::string>& words);

}  // namespace chimera::apps
