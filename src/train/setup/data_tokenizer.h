#pragma once
// What makes tokens of the text that a model reads, and which ids the samples of the model need of it.

#include <memory>
#include <string>

#include "data/open_tokens.h"
#include "data/samples.h"
#include "hugging_face/model_folder.h"
#include "model_config/config.h"
#include "tokenizer/tokenizer.h"

namespace chimera {

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
