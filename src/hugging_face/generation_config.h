#pragma once
// What a Hugging Face folder says about continuing texts.

#include <cstdint>
#include <vector>

#include "hugging_face/model_folder.h"

namespace chimera {

inline constexpr const char* kGenerationConfigName = "generation_config.json";

/// The tokens that end a text, eos_token_id: of generation_config.json or, in a folder without, of config.json, as
/// transformers has it; a number or a list of them, or nothing. Throws ConfigError, naming the file, for what is no
/// JSON or no token.
[[nodiscard]] std::vector<std::int64_t> end_tokens(const ModelFolder& folder);

}  // namespace chimera
