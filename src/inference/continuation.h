#pragma once

// Continues prompts, for `chimera generate` and for samples of text during training: scores of the next token from a
// DistributedModel, the choice of a token, and the text of the tokens so far. All ranks get the same tokens.

#include <ATen/core/Tensor.h>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "inference/spread_model.h"
#include "model_config/config.h"
#include "tokenizer/tokenizer.h"

namespace chimera {

/// Decodes tokens as they arrive, and ends before the first stop text. Holds back incomplete characters and possible
/// beginnings of a stop text.
class ContinuedText {
 public:
  /// The tokenizer must outlive this. Stop texts must not be empty.
  ContinuedText(const Tokenizer& tokenizer, std::vector<std::string> stops)
      : decoder_(tokenizer), stops_(std::move(stops)) {}

  /// Returns the text that is now certain.
  [[nodiscard]] std::string push(TokenId id);
  /// Returns the held-back text.
  [[nodiscard]] std::string finish();
  [[nodiscard]] bool stopped() const { return stopped_; }

 private:
  [[nodiscard]] std::string take(const std::string& added, bool all);

  StreamDecoder decoder_;
  std::vector<std::string> stops_;
  std::string held_;  // possible beginning of a stop text
  bool stopped_ = false;
};

/// Settings for token probabilities, applied in this order.
struct SamplingOptions {
  double temperature = 0;  // divisor; 0: highest score (greedy)
  std::int64_t top_k = 0;  // keeps this many highest scores, and ties with the last; 0: all
  double top_p = 1;        // keeps the likeliest tokens that together have this probability
  std::int64_t seed = 1;
};

/// Throws ConfigError unless temperature, top_k and seed are at least 0, and top_p is in (0, 1].
void require_valid(const SamplingOptions& options);

/// Returns the probabilities, [V] float64, for scores `logits` [V] rounded to float32. The temperature must be above 0.
/// Throws Error if the highest score is not finite or a score is NaN.
[[nodiscard]] at::Tensor token_probabilities(const at::Tensor& logits, const SamplingOptions& options);

/// Returns the token with the highest score (the first of equals), or, at a temperature above 0, the first with a
/// cumulative probability above `uniform`, in [0, 1). Throws as token_probabilities() does.
[[nodiscard]] std::int64_t choose_token(const at::Tensor& logits, const SamplingOptions& options, double uniform);

struct ContinuationOptions {
  SamplingOptions sampling;
  std::int64_t tokens = 100;                  // maximum
  std::vector<std::int64_t> end_tokens = {};  // belong to the continuation
  std::vector<std::string> stops = {};        // do not belong to it; need a tokenizer
};

struct Prompt {
  TokenIds ids;             ///< at least one
  std::int64_t number = 0;  ///< separates the draws of prompts, even of equal ones
};

struct Continuation {
  TokenIds ids;      ///< new tokens
  std::string text;  ///< text of `ids` without special tokens; empty without a tokenizer
};

/// Called with each token and its part of Continuation::text.
using OnToken = std::function<void(TokenId id, std::string_view text)>;

/// Throws ConfigError unless the model is causal.
void require_continuable(const ModelConfig& model);

/// Returns how many new tokens fit the model's positions; the last needs none. Throws ConfigError, naming the prompt as
/// `what`, if it is empty or too long.
[[nodiscard]] std::int64_t most_new_tokens(const ModelConfig& model, std::int64_t prompt_tokens,
                                           const std::string& what);

/// Throws ConfigError, naming the prompt as `what`, if a token is outside the vocabulary.
void require_in_vocabulary(const TokenIds& ids, const ModelConfig& model, const std::string& what);

/// Continues a prompt; options.tokens must be at most most_new_tokens(). All ranks call it with the same arguments and
/// get the same result. Draws depend only on the seed, the prompt's number and the new token's index. `tokenizer` may
/// be null. Throws as DistributedModel::next() and choose_token() do.
[[nodiscard]] Continuation continue_prompt(DistributedModel& model, const Prompt& prompt,
                                           const ContinuationOptions& options, const Tokenizer* tokenizer,
                                           const OnToken& on_token = {});

}  // namespace chimera
