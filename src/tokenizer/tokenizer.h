#pragma once

// Text to token ids and back, equal to the Python package tokenizers. A Tokenizer is immutable and shared by threads;
// each thread encodes with an Encoder of its own, which caches words. StreamDecoder decodes generated tokens one by
// one. make_byte_tokenizer() makes each byte a token; all other tokenizers are pipelines (pipeline_tokenizer.h), opened
// by tokenizer_folder.h.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chimera {

using TokenId = std::int32_t;
using TokenIds = std::vector<TokenId>;

/// Converts text to ids. Not thread-safe: it caches words.
class Encoder {
 public:
  virtual ~Encoder() = default;
  /// `text` should be valid UTF-8. Recognizes special tokens, but adds none. With `continues`, the text starts at a
  /// result of find_cut().
  virtual void encode(std::string_view text, TokenIds& ids, bool continues = false) = 0;
};

/// Immutable and thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  [[nodiscard]] virtual std::int64_t vocabulary_size() const = 0;
  [[nodiscard]] virtual std::unique_ptr<Encoder> make_encoder() const = 0;

  /// Finds added tokens too: "<|endoftext|>".
  [[nodiscard]] virtual std::optional<TokenId> find_token(std::string_view token) const = 0;
  [[nodiscard]] virtual std::optional<std::string> token_text(TokenId id) const = 0;
  [[nodiscard]] virtual std::optional<TokenId> end_of_document() const = 0;

  /// Returns valid UTF-8, without unknown ids and, by default, special tokens.
  [[nodiscard]] virtual std::string decode(std::span<const TokenId> ids, bool with_special = false) const = 0;
  /// Returns whether later tokens may change the text of `last`.
  [[nodiscard]] virtual bool is_open(TokenId last) const = 0;

  /// Returns a text with the special tokens of a model's input, such as "[CLS] text [SEP]".
  [[nodiscard]] virtual TokenIds with_special(const TokenIds& text) const = 0;

  /// Returns the last position >= `least` and >= 1 at which a cut does not change the ids, if the second part is
  /// encoded with `continues`; 0 if not found.
  [[nodiscard]] virtual std::size_t find_cut(std::string_view text, std::size_t least) const = 0;
};

/// Returns a tokenizer that makes each byte a token.
[[nodiscard]] std::unique_ptr<Tokenizer> make_byte_tokenizer();

[[nodiscard]] TokenIds encode(const Tokenizer& tokenizer, std::string_view text);

/// Decodes ids incrementally into prefixes of the full text.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool with_special = false)
      : tokenizer_(tokenizer), with_special_(with_special) {}

  /// Returns the new final text, valid UTF-8; often empty.
  [[nodiscard]] std::string push(TokenId id);
  /// Returns the rest; incomplete characters become U+FFFD.
  [[nodiscard]] std::string finish();

 private:
  [[nodiscard]] std::string take(bool all);

  const Tokenizer& tokenizer_;
  bool with_special_;
  TokenIds context_;  ///< returned ids that may affect later text
  TokenIds pending_;
};

}  // namespace chimera
