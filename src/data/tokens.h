#pragma once
// Text as tokens: a file of UTF-8 text, its bytes as the token ids 0 .. 255, and its two splits.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace chimera {

/// What turns text into token ids 0 .. vocabulary_size() - 1.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual std::int64_t vocabulary_size() const = 0;
};

/// Each byte is a token: 256 of them, nothing to learn, no text that cannot be written.
class ByteTokenizer final : public Tokenizer {
 public:
  [[nodiscard]] std::string name() const override { return "bytes"; }
  [[nodiscard]] std::int64_t vocabulary_size() const override { return 256; }
};

/// Consecutive tokens of a corpus, with a name for messages. Borrows from the corpus, which must outlive it.
class TokenView {
 public:
  TokenView(std::span<const std::uint8_t> tokens, std::string name) : tokens_(tokens), name_(std::move(name)) {}

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(tokens_.size()); }
  /// Token `i` of 0 .. size() - 1.
  [[nodiscard]] std::int64_t operator[](std::int64_t i) const { return tokens_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  std::span<const std::uint8_t> tokens_;
  std::string name_;
};

/// The validation split is the last 5 % of the text (size / 20 tokens, rounded down); the training split is the rest.
enum class Split { Train, Validation };

/// A text file, mapped into memory: ranks on one machine share its pages. The file must not shrink meanwhile.
class Corpus {
 public:
  Corpus(Corpus&& other) noexcept;
  Corpus& operator=(Corpus&&) = delete;
  ~Corpus();

  /// Tokens of both splits.
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(bytes_.size()); }
  /// The file, as it stands.
  [[nodiscard]] std::span<const std::uint8_t> bytes() const { return bytes_; }
  /// The tokens of one split, named "PATH (training)" or "PATH (validation)".
  [[nodiscard]] TokenView split(Split which) const;
  [[nodiscard]] const Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  friend Corpus open_corpus(const std::string& path);
  Corpus(std::span<const std::uint8_t> bytes, std::string path) : bytes_(bytes), path_(std::move(path)) {}

  std::span<const std::uint8_t> bytes_;  ///< the mapping
  std::string path_;
  ByteTokenizer tokenizer_;
};

/// Opens a UTF-8 text file. Throws ConfigError, naming the path, where it is missing, unreadable, not a regular file,
/// or empty.
[[nodiscard]] Corpus open_corpus(const std::string& path);

}  // namespace chimera
