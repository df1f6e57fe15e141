#pragma once

#include <ATen/core/Tensor.h>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "inference/spread_model.h"
#include "model_config/config.h"
#include "tokenizer/tokenizer.h"

// The text of tokens as a model makes them, up to the place where it is told to stop.

// How the next token is chosen from the model's scores: the most likely one, or one drawn by chance.

// What a model says next: prompts in, continuations out.

namespace chimera {

/// Decodes tokens as they come, and ends before the first of some texts, wherever tokens begin and end. What it has
/// returned is always the beginning of the whole: a character whose bytes are not all there is held back, and so is
/// what may be the beginning of a text to stop at.
class ContinuedText {
 public:
  /// The tokenizer must outlive this. None of `stops` is empty.
  ContinuedText(const Tokenizer& tokenizer, std::vector<std::string> stops)
      : decoder_(tokenizer), stops_(std::move(stops)) {}

  /// The text that is certain now; nothing once it has stopped.
  [[nodiscard]] std::string push(TokenId id);
  /// What was held back, as no token follows.
  [[nodiscard]] std::string finish();
  /// Whether one of the texts has come.
  [[nodiscard]] bool stopped() const { return stopped_; }

 private:
  [[nodiscard]] std::string take(const std::string& added, bool all);

  StreamDecoder decoder_;
  std::vector<std::string> stops_;
  std::string held_;  // the beginning of one of them, perhaps
  bool stopped_ = false;
};

/// What shapes the probabilities of tokens, in this order.
struct SamplingOptions {
  double temperature = 0;  // what scores are divided by; 0: the token of the highest score (greedy)
  std::int64_t top_k = 0;  // only so many tokens of the highest scores, and all that equal the last of them; 0: all
  double top_p = 1;        // only the likeliest tokens that together have this probability, at least one
  std::int64_t seed = 1;   // of the draws
};

/// Throws ConfigError, naming the flag, unless the temperature and top_k are at least 0, top_p is above 0 and at most
/// 1, and the seed is not negative.
void require_valid(const SamplingOptions& options);

/// The probabilities of all tokens, [V] float64, at a temperature above 0: of the scores `logits` [V], rounded to
/// float32. Throws Error where the highest of them is not finite, or one is no number.
[[nodiscard]] at::Tensor token_probabilities(const at::Tensor& logits, const SamplingOptions& options);

/// The token of the highest score, of several the first; or, at a temperature above 0, the first one up to which the
/// probabilities add up to more than `uniform`, a random number in [0, 1). Throws as token_probabilities().
[[nodiscard]] std::int64_t choose_token(const at::Tensor& logits, const SamplingOptions& options, double uniform);

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
