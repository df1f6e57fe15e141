#pragma once

// Chooses the tokenizer of a job's text: the value of --tokenizer, the tokenizer in the model folder or checkpoint, or
// bytes as tokens. Also finds the special tokens of BERT's samples, and makes the prompt of --sample-every. A file of
// --tokenizer may be moved or replaced later. Therefore a checkpoint contains a copy of its run's tokenizer, and its
// manifest (checkpoint/manifest.h) has the hashes of the copy.

#include "data/open_tokens.h"
#include "data/samples.h"
#include "hugging_face/model_folder.h"
#include "inference/continuation.h"
#include "model_config/config.h"
#include "tokenizer/tokenizer.h"
#include "train/setup/options.h"

namespace chimera {

/// Maximum number of new tokens in a sample.
inline constexpr std::int64_t kSampleTokens = 64;

/// A prompt that the model continues greedily during training.
struct TrainingPrompt {
  std::shared_ptr<const Tokenizer> tokenizer;
  Prompt prompt;
  ContinuationOptions options;
};

/// Returns the prompt of a job; null without --sample-every and --prompt. `tokenizer` names the tokenizer of the job's
/// data (empty: unknown). Throws ConfigError if the model is not causal, or if the prompt is missing, has no tokenizer
/// or does not fit the model.
[[nodiscard]] std::shared_ptr<const TrainingPrompt> training_prompt(const TrainOptions& options,
                                                                    const std::string& tokenizer,
                                                                    const ModelConfig& model);

/// Returns the tokenizer of a model folder or checkpoint: a path, or `bytes`, for open_tokenizer(); empty without one.
/// A checkpoint must have been verified. Checkpoints of older versions have only the path of their tokenizer; this
/// function looks for it in the checkpoint's folder, in the two folders above it, and then at the path itself. Throws
/// ConfigError if it is missing.
[[nodiscard]] std::string tokenizer_of_folder(const std::string& folder);

/// Returns the section `tokenizer` of a checkpoint's manifest (Manifest::run): `source`, and `files` with the hash of
/// each of `texts` (name -> content of a file of the tokenizer).
[[nodiscard]] nlohmann::ordered_json tokenizer_record(const std::string& tokenizer,
                                                      const std::map<std::string, std::string>& texts);

/// Returns the tokenizer that Manifest::run names (`run`), also in checkpoints of older versions; empty if unknown.
[[nodiscard]] std::string recorded_source(const nlohmann::ordered_json& run);

/// The tokenizer of a model's data; without one, bytes are tokens.
class DataTokenizer {
 public:
  /// `given` is the value of --tokenizer. If it is empty, uses the tokenizer of `from` (tokenizer_of_folder()) or,
  /// without one, bytes. Throws ConfigError if the tokenizer cannot be opened, or has more tokens than the model's
  /// vocabulary.
  DataTokenizer(const std::string& given, const ModelFolder* from, const ModelConfig& model);

  /// Returns vocabulary, document separator and encoder, to open data with. The result borrows this object.
  [[nodiscard]] TokenOptions token_options() const;
  /// Returns kind and special tokens of the samples; the caller adds sequence, seed and documents. Throws ConfigError
  /// if the vocabulary is too small for plain text, if BERT's special tokens are not known, or for plain text if the
  /// model's tokenizer is not known and bytes are not its tokens.
  [[nodiscard]] SampleOptions sample_options(bool is_plain_text) const;
  /// Returns the tokenizer of plain text or (`is_plain_text` is false) of tokenized data, as an argument of
  /// open_tokenizer(). For tokenized data, this is --tokenizer or the model's tokenizer. Empty if unknown.
  [[nodiscard]] std::string source(bool is_plain_text) const;

 private:
  [[nodiscard]] std::int64_t special_token(const char* token) const;

  std::string model_;
  std::int64_t vocabulary_;
  SampleKind kind_;
  std::string unknown_;                   // Why the tokenizer of the model's text is unknown; else empty
  std::string path_;                      // Of the tokenizer; empty: not known
  std::unique_ptr<Tokenizer> tokenizer_;  // Null: bytes
};

}  // namespace chimera
