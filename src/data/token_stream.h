#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/choices.h"
#include "data/token_file.h"

// What becomes of a document that ends inside a sample.

// Tokens of several files as one sequence, and consecutive parts of it.

namespace chimera {

enum class Documents : std::uint8_t {
  Pack,   ///< the next one follows, as if they were one text
  Split,  ///< the same tokens, but a token sees those of its own document alone
};
template <>
inline constexpr auto kNames<Documents> = std::to_array<Named<Documents>>({{Documents::Pack, "pack"},
                                                                           {Documents::Split, "split"}});

/// The tokens of files one after the other. A document ends with its file, unless a mark separates the documents: such
/// files may be cut anywhere.
class TokenStream {
 public:
  explicit TokenStream(std::vector<TokenFile> files);

  [[nodiscard]] std::int64_t size() const { return starts_.back(); }
  [[nodiscard]] const std::vector<TokenFile>& files() const { return files_; }

  /// Fills `tokens` from token `first` on. Throws as TokenFile::read.
  void read(std::int64_t first, std::span<std::int64_t> tokens) const;
  /// Which of `count` tokens from `first` on, but for the very first, begin a document: counted from `first`,
  /// ascending.
  [[nodiscard]] std::vector<std::int64_t> document_starts(std::int64_t first, std::int64_t count) const;

 private:
  /// A run of tokens in one file.
  struct Piece {
    std::size_t file = 0;
    std::int64_t first = 0;  ///< in the file
    std::int64_t count = 0;
  };
  [[nodiscard]] std::vector<Piece> pieces(std::int64_t first, std::int64_t count) const;
  [[nodiscard]] bool begins_document(std::size_t file) const;

  std::vector<TokenFile> files_;
  std::vector<std::int64_t> starts_;  ///< [file] its first token in the stream; last: the number of all tokens
};

/// Consecutive tokens of a stream, with a name for messages. It keeps the stream open.
class TokenView {
 public:
  TokenView(std::shared_ptr<const TokenStream> stream, std::int64_t first, std::int64_t size, std::string name);

  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  /// `count` tokens from `first` on, all of 0 .. size() - 1.
  [[nodiscard]] std::vector<std::int64_t> read(std::int64_t first, std::int64_t count) const;
  /// The same as TokenStream::document_starts.
  [[nodiscard]] std::vector<std::int64_t> document_starts(std::int64_t first, std::int64_t count) const;

 private:
  void require_inside(std::int64_t first, std::int64_t count) const;

  std::shared_ptr<const TokenStream> stream_;
  std::int64_t first_;
  std::int64_t size_;
  std::string name_;
};

/// Tokens in a file that exists in memory only, at least one. Ids of `vocabulary` and above are refused when read.
[[nodiscard]] TokenFile tokens_in_memory(std::span<const std::int32_t> tokens, const std::string& name,
                                         std::int64_t vocabulary);
/// Each byte is a token: nothing to learn, and no text that cannot be written.
inline constexpr std::int64_t kByteVocabulary = 256;

/// The bytes of a text as tokens, in a file in memory only.
[[nodiscard]] TokenView text_in_memory(std::span<const std::uint8_t> text, const std::string& name);

}  // namespace chimera
