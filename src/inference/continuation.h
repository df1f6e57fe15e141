#pragma once
// What a model says next: prompts in, continuations out.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "inference/sampling.h"
#include "inference/spread_model.h"
#include "model_config/config.h"
#include "tokenizer/tokenizer.h"

namespace chimera {

struct ContinuationOptions {
  SamplingOptions sampling;
  std::int64_t tokens = 100;                  // new ones, at most
  std::vector<std::int64_t> end_tokens = {};  // that end a continuation, and belong to it
  std::vector<std::string> stops = {};        // texts that end it, and do not; they need a tokenizer
};

struct Prompt {
  TokenIds ids;             ///< at least one
  std::int64_t number = 0;  ///< tells the draws of prompts apart, of equal ones too
};

struct Continuation {
  TokenIds ids;      ///< new ones only
  std::string text;  ///< of them, without special tokens; empty where there is no tokenizer
};

/// Called with each new token and the text that is certain with it: a character whose bytes are not all there is held
/// back. All these texts make that of the continuation.
using OnToken = std::function<void(TokenId id, std::string_view text)>;

/// Throws ConfigError, naming the model, unless it is causal.
void require_continuable(const ModelConfig& model);

/// New tokens that the model has positions for behind a prompt of so many tokens; the last one needs none. Throws
/// ConfigError, which names the prompt as `what`, where there are no tokens, or more than positions.
[[nodiscard]] std::int64_t most_new_tokens(const ModelConfig& model, std::int64_t prompt_tokens,
                                           const std::string& what);

/// Throws ConfigError, which names the prompt as `what`, where a token lies outside the model's vocabulary.
void require_in_vocabulary(const TokenIds& ids, const ModelConfig& model, const std::string& what);

/// Lets the model continue a prompt, at most to most_new_tokens() of it. All ranks of the model call it with the same
/// arguments and get the same result. Draws depend on the seed, the prompt's number and the place of the new token
/// alone. `tokenizer` may be null. Throws what SpreadModel::next() and choose_token() throw.
[[nodiscard]] Continuation continue_prompt(SpreadModel& model, const Prompt& prompt, const ContinuationOptions& options,
                                           const Tokenizer* tokenizer, const OnToken& on_token = {});

}  // namespace chimera
