#pragma once
// Models that are named by a preset, a file or a folder.

#include <string>

#include "model_config/config.h"

namespace chimera {

/// The model of a Hugging Face folder, whose weights are looked at too, where `name` is a folder; else find_model()'s.
/// Throws ConfigError as ModelFolder and find_model().
[[nodiscard]] ModelConfig find_model_or_folder(const std::string& name);

}  // namespace chimera
