#pragma once

// Continues prompts, for `chimera generate` and for samples of text during training. For each new token, a
// DistributedModel computes the scores (logits) of all tokens of the vocabulary, choose_token() chooses one, and
// ContinuedText makes text of it. The model may be divided over several ranks; all of them call continue_prompt() and
// get the same tokens.
//
// A DistributedModel is a causal model whose stages (consecutive layers) are on several ranks. Each rank runs its
// stages in turn and sends hidden states to the rank of the next stage. The rank with the last stage chooses the next
// token, and a sum to which the other ranks add zero distributes it.

#include <cstddef>
#include <map>

#include "hugging_face/model_folder.h"
#include "model/key_value_cache.h"
#include "model/stage.h"
#include "model/transformer_stage.h"
#include "model_config/config.h"
#include "tokenizer/tokenizer.h"
#include "transport/transport.h"

namespace chimera {

/// Which rank runs each stage in inference.
struct StageRanks {
  std::vector<RankId> holders;  ///< [stage]; a rank may hold several stages
  RankId self;                  ///< calling rank
  bool is_copy = false;         ///< tensor parallelism: another rank chooses the same token, so this one adds zero
};

/// One replica of a causal model, whose stages are on several ranks. All ranks, also those without a stage, must call
/// its functions in the same order with the same arguments.
class DistributedModel {
 public:
  /// `stages` are this rank's stages of GPT-2 or Llama; stages that `ranks` assigns to other ranks are ignored.
  /// `hidden` and `dtype` are the width and type of hidden states. Borrows stages and transport.
  DistributedModel(const std::map<StageId, Stage*>& stages, StageRanks ranks, Transport& transport, std::int64_t hidden,
                   at::ScalarType dtype, at::Device device = at::kCPU);

  /// Begins a sequence of at most `tokens` tokens, prompt and new tokens together. Forgets the sequence before. Call it
  /// before next().
  void begin(std::int64_t tokens);

  /// Function that chooses the next token from the logits [V] of the last token. Only the rank with the last stage
  /// calls it.
  using Choose = std::function<std::int64_t(const at::Tensor& logits)>;
  /// Appends `tokens` (at least one) to the sequence. Returns the next token, chosen by `choose`, on all ranks, but
  /// does not append it. Throws TransportError if a rank is lost, and the errors of `choose`.
  [[nodiscard]] TokenId next(std::span<const TokenId> tokens, const Choose& choose);

 private:
  [[nodiscard]] bool holds(std::size_t stage) const { return ranks_.holders[stage] == ranks_.self; }
  /// Runs `tokens` through the stages. Returns the logits of the last token; undefined on ranks without the last stage.
  [[nodiscard]] at::Tensor read(std::span<const TokenId> tokens);
  [[nodiscard]] at::Tensor run(std::size_t stage, const at::Tensor& input, std::span<const TokenId> tokens);
  [[nodiscard]] MessageTag tag(std::size_t stage) const;

  std::map<std::size_t, const TransformerStage*> stages_;
  StageRanks ranks_;
  Transport& transport_;
  std::int64_t hidden_;
  at::ScalarType dtype_;
  at::Device device_;
  std::map<std::size_t, std::shared_ptr<KeyValueCache>> key_value_caches_;  // [stage]
  std::int64_t length_ = 0;                                                 // tokens of the sequence so far
  std::int64_t reads_ = 0;                                                  // number of read() calls, for message tags
};

/// Decodes tokens as they arrive, and ends before the first stop text. Keeps back text that may be incomplete: parts of
/// UTF-8 characters, and a possible beginning of a stop text. Not thread-safe.
class ContinuedText {
 public:
  /// The tokenizer must outlive this. Stop texts must not be empty.
  ContinuedText(const Tokenizer& tokenizer, std::vector<std::string> stops)
      : decoder_(tokenizer), stops_(std::move(stops)) {}

  /// Adds a token. Returns the new text that is certain to be in the output; may be empty.
  [[nodiscard]] std::string push(TokenId id);
  /// Returns the rest of the text, when no token follows.
  [[nodiscard]] std::string finish();
  /// Returns whether a stop text was found.
  [[nodiscard]] bool has_stopped() const { return stopped_; }

 private:
  [[nodiscard]] std::string take(const std::string& added, bool all);

  StreamDecoder decoder_;
  std::vector<std::string> stops_;
  std::string held_;  // possible beginning of a stop text
  bool stopped_ = false;
};

/// How a token is chosen from the scores. The settings are applied in this order.
struct SamplingOptions {
  double temperature = 0;  // divisor of the scores; 0: take the highest score (greedy), ignore the rest
  std::int64_t top_k = 0;  // keeps only this many highest scores, and scores equal to the last of them; 0: all
  double top_p = 1;        // keeps only the likeliest tokens that together have this probability
  std::int64_t seed = 1;
};

/// Throws ConfigError unless temperature, top_k and seed are at least 0, and top_p is in (0, 1].
void require_valid(const SamplingOptions& options);

/// Returns the probabilities of the V tokens of the vocabulary, [V] in float64. The scores `logits` [V] are first
/// rounded to float32. The temperature must be above 0. Throws Error if the highest score is not finite or a score is
/// NaN.
[[nodiscard]] at::Tensor token_probabilities(const at::Tensor& logits, const SamplingOptions& options);

/// Chooses a token. At temperature 0, returns the token with the highest score (the first of equal ones). Otherwise
/// returns the first token whose cumulative probability is above `uniform`, a random number in [0, 1). Throws as
/// token_probabilities() does.
[[nodiscard]] std::int64_t choose_token(const at::Tensor& logits, const SamplingOptions& options, double uniform);

/// How a prompt is continued.
struct ContinuationOptions {
  SamplingOptions sampling;
  ScoreRules rules = {};
  std::int64_t tokens = 100;                  // maximum number of new tokens
  std::vector<std::int64_t> end_tokens = {};  // tokens that end the continuation, and are its last token
  std::vector<std::string> stops = {};        // texts that end it, and are not part of it; need a tokenizer
};

/// Tokens to continue.
struct Prompt {
  TokenIds ids;             ///< at least one
  std::int64_t number = 0;  ///< number of the prompt; prompts with different numbers get different random numbers
};

/// Result of continue_prompt().
struct Continuation {
  TokenIds ids;      ///< new tokens, without the prompt
  std::string text;  ///< text of `ids` without special tokens; empty without a tokenizer
};

/// Function that is called, on each rank, with each new token and the text that it adds to Continuation::text; the text
/// may be empty.
using OnToken = std::function<void(TokenId id, std::string_view text)>;

/// Throws ConfigError unless the model is causal (each token attends only to earlier tokens), as generation needs.
void require_continuable(const ModelConfig& model);

/// Returns the maximum number of new tokens after a prompt: the positions of the model, or of its sliding window if
/// that is shorter, that the prompt leaves, and one more, because the last token is not fed back. Throws ConfigError,
/// which names the prompt as `what`, if the prompt is empty or too long.
[[nodiscard]] std::int64_t most_new_tokens(const ModelConfig& model, std::int64_t prompt_tokens,
                                           const std::string& what);

/// Throws ConfigError, which names the prompt as `what`, if a token is outside the vocabulary.
void require_in_vocabulary(const TokenIds& ids, const ModelConfig& model, const std::string& what);

/// Continues a prompt; options.tokens must be at most most_new_tokens(). All ranks call it with the same arguments and
/// get the same result. Random numbers depend only on the seed, the prompt's number and the index of the new token.
/// `tokenizer` may be null; then there is no text. Throws as DistributedModel::next() and choose_token() do.
[[nodiscard]] Continuation continue_prompt(DistributedModel& model, const Prompt& prompt,
                                           const ContinuationOptions& options, const Tokenizer* tokenizer,
                                           const OnToken& on_token = {});

}  // namespace chimera
