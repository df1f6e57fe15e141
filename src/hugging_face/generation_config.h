#pragma once

// Reads the settings of a Hugging Face folder that shape a generated text: generation_config.json or, if the folder
// lacks it, eos_token_id of config.json.

#include "hugging_face/model_folder.h"

namespace chimera {

/// Rules that change the scores of the next token before it is chosen, as the logits processors of transformers. All
/// tokens are ids; ids outside the vocabulary have no effect.
struct ScoreRules {
  double repetition_penalty = 1;          ///< Divides positive and multiplies negative scores of earlier tokens
  std::int64_t no_repeat_ngram_size = 0;  ///< Forbids a second occurrence of this many consecutive tokens; 0: off
  std::vector<std::vector<std::int64_t>> bad_words_ids = {};  ///< Forbidden sequences
  std::int64_t min_length = 0;                                ///< Tokens with the prompt before an end token may follow
  std::int64_t min_new_tokens = 0;                            ///< New tokens before an end token may follow
  std::vector<std::int64_t> suppress_tokens = {};             ///< Forbidden everywhere
  std::vector<std::int64_t> begin_suppress_tokens = {};       ///< Forbidden as the first new token
};

/// Settings of a folder for generated texts.
struct GenerationConfig {
  std::vector<std::int64_t> end_tokens;  ///< Tokens that end a text (eos_token_id)
  ScoreRules rules;
  std::vector<std::string> ignored;  ///< Fields of the file that would change a text, but are not supported
};

/// Reads the settings of a folder. Throws ConfigError for invalid JSON, tokens or values.
[[nodiscard]] GenerationConfig read_generation_config(const ModelFolder& folder);

}  // namespace chimera
