#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Text as token ids and back, whatever kind of tokenizer does it.

namespace chimera {

using TokenId = std::int32_t;
using TokenIds = std::vector<TokenId>;

/// Turns text into ids. It remembers the words that it has seen, so each thread has its own.
class Encoder {
 public:
  virtual ~Encoder() = default;
  /// Appends the ids of `text`, which should be valid UTF-8. Special tokens that stand in the text are found, none is
  /// added. With `continues` the text goes on behind a place that Tokenizer::find_cut gave, instead of beginning.
  virtual void encode(std::string_view text, TokenIds& ids, bool continues = false) = 0;
};

/// What a model is given: ids, and for each the text that it belongs to (0 for the first, 1 for the second).
struct Template {
  TokenIds ids;
  TokenIds types;
};

/// A vocabulary and the rules that cut text into its tokens. It does not change, and any thread may use it.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// The kind, for people: "bytes", "byte-level BPE", "BPE with byte fallback", "WordPiece" ...
  [[nodiscard]] virtual std::string name() const = 0;
  /// All ids are below; a model needs at least as many embeddings.
  [[nodiscard]] virtual std::int64_t vocabulary_size() const = 0;
  [[nodiscard]] virtual std::unique_ptr<Encoder> make_encoder() const = 0;

  /// The id of a token as the vocabulary writes it ("<|endoftext|>"), of the added tokens too.
  [[nodiscard]] virtual std::optional<TokenId> find_token(std::string_view token) const = 0;
  /// The token as the vocabulary writes it; nothing where no token has the id.
  [[nodiscard]] virtual std::optional<std::string> token_text(TokenId id) const = 0;
  [[nodiscard]] virtual bool is_special(TokenId id) const = 0;
  /// The id that ends a document, where the vocabulary has a token that is known to.
  [[nodiscard]] virtual std::optional<TokenId> end_of_document() const = 0;

  /// The text of ids, valid UTF-8; ids that no token has are left out, and so are special tokens, unless asked for.
  [[nodiscard]] virtual std::string decode(std::span<const TokenId> ids, bool with_special = false) const = 0;
  /// Whether the text of a token may yet change with the tokens behind it, though it ends with a whole character.
  [[nodiscard]] virtual bool is_open(TokenId last) const = 0;

  /// The special tokens that a model expects around one text, or around two ("[CLS] first [SEP] second [SEP]").
  [[nodiscard]] virtual Template with_special(const TokenIds& first) const = 0;
  [[nodiscard]] virtual Template with_special(const TokenIds& first, const TokenIds& second) const = 0;

  /// The last place of 1 .. text.size() - 1, at least `least`, at which the text can be cut so that both parts, the
  /// second with `continues`, encode to the ids of the whole; 0 where there is none. Finds no more than it needs.
  [[nodiscard]] virtual std::size_t find_cut(std::string_view text, std::size_t least) const = 0;
};

/// Each byte of the text is a token.
class ByteTokenizer final : public Tokenizer {
 public:
  [[nodiscard]] std::string name() const override { return "bytes"; }
  [[nodiscard]] std::int64_t vocabulary_size() const override { return 256; }
  [[nodiscard]] std::unique_ptr<Encoder> make_encoder() const override;
  [[nodiscard]] std::optional<TokenId> find_token(std::string_view token) const override;
  [[nodiscard]] std::optional<std::string> token_text(TokenId id) const override;
  [[nodiscard]] bool is_special(TokenId) const override { return false; }
  [[nodiscard]] std::optional<TokenId> end_of_document() const override { return std::nullopt; }
  [[nodiscard]] std::string decode(std::span<const TokenId> ids, bool with_special) const override;
  [[nodiscard]] bool is_open(TokenId) const override { return false; }
  [[nodiscard]] Template with_special(const TokenIds& first) const override;
  [[nodiscard]] Template with_special(const TokenIds& first, const TokenIds& second) const override;
  [[nodiscard]] std::size_t find_cut(std::string_view text, std::size_t least) const override;
};

/// The ids of one text.
[[nodiscard]] TokenIds encode(const Tokenizer& tokenizer, std::string_view text);

/// Decodes ids as they come: what it has returned so far is always the beginning of the text of all of them. A
/// character whose bytes are not all there is held back.
class StreamDecoder {
 public:
  /// The tokenizer must outlive this.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool with_special = false)
      : tokenizer_(tokenizer), with_special_(with_special) {}

  /// The text that is certain now, valid UTF-8; often empty.
  [[nodiscard]] std::string push(TokenId id);
  /// What was held back: characters that stayed incomplete are U+FFFD.
  [[nodiscard]] std::string finish();

 private:
  [[nodiscard]] std::string take(bool all);

  const Tokenizer& tokenizer_;
  bool with_special_;
  TokenIds context_;  ///< whose text is returned already: what a token's text is may depend on those before it
  TokenIds pending_;
};

inline constexpr const char* kTokenizerJson = "tokenizer.json";
/// What transformers keeps beside it: the class, and the names of special tokens.
inline constexpr const char* kTokenizerConfig = "tokenizer_config.json";
/// A folder that holds one of these has a tokenizer: that of the first.
inline constexpr std::array kTokenizerNames = {kTokenizerJson, "vocab.json", "vocab.txt"};

/// The word that open_tokenizer takes for tokens that are bytes.
inline constexpr const char* kBytes = "bytes";

/// Opens the tokenizer of a path: "bytes"; a tokenizer.json; a vocab.json, whose merges.txt lies beside it; a
/// vocab.txt; a folder with one of these (kTokenizerNames). Throws ConfigError, naming file and place, for what is
/// malformed, and by name for what it asks for and Chimera does not have.
[[nodiscard]] std::unique_ptr<Tokenizer> open_tokenizer(const std::string& path);

/// A file of a tokenizer.
struct TokenizerFile {
  std::string path;
  std::string name;  ///< that a folder has for it
};

/// The files that are there behind a path which open_tokenizer() takes: a folder with them by these names is that
/// tokenizer. Among them are all that it reads, and what only others read; none for "bytes".
[[nodiscard]] std::vector<TokenizerFile> tokenizer_files(const std::string& path);

/// The file that says of which kind the tokenizer of a path is, whether it is there or not: tokenizer.json, vocab.json
/// or vocab.txt. Nothing for "bytes" and for a folder that has none of these.
[[nodiscard]] std::optional<TokenizerFile> main_tokenizer_file(const std::string& path);

/// Whether the tokenizer of a path makes each byte of a text its token: "bytes", and what byte_tokenizer_json() wrote.
[[nodiscard]] bool makes_bytes(const std::string& path);

}  // namespace chimera
