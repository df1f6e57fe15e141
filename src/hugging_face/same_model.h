#pragma once
// Whether flags contradict a folder.

#include <string>

#include "hugging_face/model_folder.h"
#include "model_config/config.h"

namespace chimera {

/// Throws ConfigError, naming the first difference, where `model` (a preset or a TOML file; empty: none was given) with
/// `overrides` is another model than the folder's. Names do not count.
void require_no_contradiction(const ModelFolder& folder, const std::string& model, const ModelOverrides& overrides);

}  // namespace chimera
