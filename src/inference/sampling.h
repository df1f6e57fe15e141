#pragma once
// How the next token is chosen from the model's scores: the most likely one, or one drawn by chance.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace chimera {

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

}  // namespace chimera
