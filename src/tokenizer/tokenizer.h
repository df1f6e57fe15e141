#pragma once

// Converts text to token ids and back, with the same results as the Python package tokenizers. A Tokenizer is immutable
// and shared by threads; each thread encodes with its own Encoder, which caches words. StreamDecoder decodes generated
// tokens one by one. open_tokenizer() (tokenizer_folder.h) returns a byte tokenizer, or a tokenizer made from files
// (pipeline_tokenizer.h).

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
  /// Appends the ids of `text` to `ids`. `text` should be valid UTF-8. Special tokens in the text are recognized, but
  /// none are added. `continues`: the text is the second part of a text that was cut at a position of
  /// Tokenizer::find_cut().
  virtual void encode(std::string_view text, TokenIds& ids, bool continues = false) = 0;
};

/// A vocabulary, and the rules that divide text into its tokens. Immutable and thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Returns the smallest number that is above all ids, also those of added tokens.
  [[nodiscard]] virtual std::int64_t vocabulary_size() const = 0;
  /// Returns a new encoder for one thread. The tokenizer must outlive it.
  [[nodiscard]] virtual std::unique_ptr<Encoder> make_encoder() const = 0;

  /// Returns the id of a token of the vocabulary or of an added token, such as "<|endoftext|>"; nullopt if there is
  /// none.
  [[nodiscard]] virtual std::optional<TokenId> find_token(std::string_view token) const = 0;
  /// Returns the token with this id, as the vocabulary spells it; nullopt if there is none.
  [[nodiscard]] virtual std::optional<std::string> token_text(TokenId id) const = 0;
  /// Returns the token that ends a document; nullopt if the tokenizer has none.
  [[nodiscard]] virtual std::optional<TokenId> end_of_document() const = 0;

  /// Returns the text of the ids as valid UTF-8. Omits unknown ids and, unless `with_special`, special tokens.
  [[nodiscard]] virtual std::string decode(std::span<const TokenId> ids, bool with_special = false) const = 0;
  /// Returns whether later tokens may change the text of `last`, for example because it ends within a character.
  [[nodiscard]] virtual bool is_open(TokenId last) const = 0;

  /// Returns the ids of a text together with the special tokens of a model's input, such as "[CLS] text [SEP]".
  [[nodiscard]] virtual TokenIds with_special(const TokenIds& text) const = 0;

  /// Returns the last position, at least `least` and at least 1, at which the text can be cut without changing its ids.
  /// The second part must be encoded with `continues`. Returns 0 if there is no such position.
  [[nodiscard]] virtual std::size_t find_cut(std::string_view text, std::size_t least) const = 0;
};

/// Returns a tokenizer that makes each byte a token; its id is the value of the byte. No token ends a document.
[[nodiscard]] std::unique_ptr<Tokenizer> make_byte_tokenizer();

/// Returns the ids of a text, by a temporary Encoder.
[[nodiscard]] TokenIds encode(const Tokenizer& tokenizer, std::string_view text);

/// Decodes ids one by one, for text that is shown while it is generated. Not thread-safe. Borrows the tokenizer.
class StreamDecoder {
 public:
  /// `with_special` is as in Tokenizer::decode().
  explicit StreamDecoder(const Tokenizer& tokenizer, bool with_special = false)
      : tokenizer_(tokenizer), with_special_(with_special) {}

  /// Adds an id. Returns the text that later ids cannot change and that has not been returned before, as valid UTF-8;
  /// it may be empty.
  [[nodiscard]] std::string push(TokenId id);
  /// Returns the remaining text; incomplete characters become U+FFFD.
  [[nodiscard]] std::string finish();

 private:
  [[nodiscard]] std::string take(bool all);

  const Tokenizer& tokenizer_;
  bool with_special_;
  TokenIds context_;  ///< returned ids that may affect later text
  TokenIds pending_;
};

}  // namespace chimera
