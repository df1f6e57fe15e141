#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "data/open_tokens.h"
#include "data/samples.h"
#include "engine/run_shape.h"
#include "hugging_face/model_folder.h"
#include "inference/continuation.h"
#include "model/stage.h"
#include "model_config/config.h"
#include "tokenizer/tokenizer.h"
#include "transport/transport.h"

// What a model says now and then as it trains: --sample-every and --prompt.

// What makes tokens of the text that a model reads, and which ids the samples of the model need of it.

namespace chimera {

struct Job;

/// New tokens of each sample, or as many as the model has positions for.
inline constexpr std::int64_t kSampleTokens = 64;

/// A prompt that the model in training continues greedily.
struct TrainingPrompt {
  std::shared_ptr<const Tokenizer> tokenizer;
  Prompt prompt;
  ContinuationOptions options;
};

/// The prompt of a job whose data are open; none where it does not ask for samples. Throws ConfigError, one line, where
/// the model is not causal, or the prompt has no tokens, or some that do not fit the model.
[[nodiscard]] std::shared_ptr<const TrainingPrompt> training_prompt(const Job& job);

/// What the model says now. All ranks call it between steps, and all get the text; the stages of replica 0 in group 0
/// make it. `stages`: those of this rank. `on_token` is called after each token.
[[nodiscard]] std::string say(const Job& job, const std::map<StageId, Stage*>& stages, RankId rank,
                              Transport& transport, const std::function<void()>& on_token);

/// The tokenizer of a model's folder, as open_tokenizer takes it: the folder, where it has one; where it is a
/// checkpoint, that which its run recorded, if it is still there; else nothing.
[[nodiscard]] std::string tokenizer_of_folder(const std::string& folder);

/// A tokenizer that fits a model; where there is none, bytes are tokens.
class DataTokenizer {
 public:
  /// `given`: what --tokenizer says, perhaps nothing. Then it is that of the folder `from` that the model comes from
  /// (tokenizer_of_folder), if there is one, else bytes. A tokenizer of bytes (makes_bytes) is none. Throws ConfigError
  /// as open_tokenizer, and for more tokens than the model's vocabulary has.
  DataTokenizer(const std::string& given, const ModelFolder* from, const ModelConfig& model);

  /// How files become tokens of the model, and what ends their documents. The result borrows the tokenizer.
  [[nodiscard]] TokenOptions token_options() const;
  /// Which samples the model is trained and evaluated on, of data that is plain text or not: all but their sequence,
  /// seed and documents. Throws ConfigError where the model's vocabulary is too small for plain text, and for BERT
  /// where nothing says which of the tokens are special.
  [[nodiscard]] SampleOptions sample_options(bool is_plain_text) const;
  /// The tokenizer that made the tokens of such data, as open_tokenizer takes it: for tokens that came from elsewhere
  /// the one that was given, or that of the model's folder. Empty where nothing says.
  [[nodiscard]] std::string source(bool is_plain_text) const;

 private:
  [[nodiscard]] std::int64_t special_token(const char* token) const;

  std::string model_;  // its name
  std::int64_t vocabulary_;
  SampleKind kind_;
  std::string folder_;                    // of the model; empty: it has none
  std::string path_;                      // of the tokenizer; empty where nothing says
  std::unique_ptr<Tokenizer> tokenizer_;  // none: bytes
};

}  // namespace chimera
