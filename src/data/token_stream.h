#pragma once

// Tokens of several files as one sequence. The token files of a folder form one TokenStream. A TokenView is the part of
// a stream for training or for validation. Samples (samples.h) cuts a view into samples.

#include <memory>

#include "core/choices.h"
#include "data/token_file.h"

namespace chimera {

/// Treatment of a sample that has tokens of several documents.
enum class Documents : std::uint8_t {
  Pack,   ///< tokens attend to all earlier tokens of the sample, as if it were one document
  Split,  ///< the same tokens, but each attends only to tokens of its own document
};
template <>
inline constexpr auto kNames<Documents> = in_order<Documents>("pack", "split");

/// Concatenated tokens of files. Each file begins a new document, unless the file before it separates its documents by
/// a mark (DocumentMark); then its last document may continue in the next file.
class TokenStream {
 public:
  explicit TokenStream(std::vector<TokenFile> files);

  [[nodiscard]] std::int64_t size() const { return starts_.back(); }
  [[nodiscard]] const std::vector<TokenFile>& files() const { return files_; }
  /// Returns whether the ends of documents are known: if a file separates its documents (TokenFile), or if one of
  /// several files is a text, because a text file is one document. Several token files without separators may be parts
  /// of one sequence.
  [[nodiscard]] bool separates_documents() const;

  /// Reads tokens.size() tokens from `first` on. Throws the errors of TokenFile::read(), such as ConfigError for an id
  /// outside the vocabulary, and std::out_of_range if they are not inside the stream.
  void read(std::int64_t first, std::span<std::int64_t> tokens) const;
  /// Returns which of the `count` - 1 tokens after `first` start a document: ascending offsets from `first`.
  [[nodiscard]] std::vector<std::int64_t> document_starts(std::int64_t first, std::int64_t count) const;

 private:
  struct Piece {
    std::size_t file = 0;
    std::int64_t first = 0;  ///< position in the file
    std::int64_t count = 0;
  };
  [[nodiscard]] std::vector<Piece> pieces(std::int64_t first, std::int64_t count) const;
  [[nodiscard]] bool begins_document(std::size_t file) const;

  std::vector<TokenFile> files_;
  std::vector<std::int64_t> starts_;  ///< [file]: its first token; last entry: number of tokens
};

/// Consecutive tokens of a stream. Keeps the stream open. Positions count tokens from the start of the view. Any number
/// of threads may read.
class TokenView {
 public:
  /// `first` is the position in the stream of the view's first token, and `size` the number of its tokens. `name` is
  /// for messages.
  TokenView(std::shared_ptr<const TokenStream> stream, std::int64_t first, std::int64_t size, std::string name);

  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const TokenStream& stream() const { return *stream_; }
  /// Reads `count` tokens from position `first` on. Throws std::out_of_range if they are not inside the view, and the
  /// errors of TokenStream::read().
  [[nodiscard]] std::vector<std::int64_t> read(std::int64_t first, std::int64_t count) const;
  /// Returns which of the `count` - 1 tokens after `first` start a document: ascending offsets from `first`.
  [[nodiscard]] std::vector<std::int64_t> document_starts(std::int64_t first, std::int64_t count) const;

 private:
  void require_inside(std::int64_t first, std::int64_t count) const;

  std::shared_ptr<const TokenStream> stream_;
  std::int64_t first_;
  std::int64_t size_;
  std::string name_;
};

/// Returns a TokenFile for a copy of these tokens, at least one. Reads reject ids of `vocabulary` and above.
[[nodiscard]] TokenFile tokens_in_memory(std::span<const std::int32_t> tokens, const std::string& name,
                                         std::int64_t vocabulary);
/// Number of ids if each byte is a token.
inline constexpr std::int64_t kByteVocabulary = 256;

/// Returns a view of a copy of the text, which may be empty; each byte is a token.
[[nodiscard]] TokenView text_in_memory(std::span<const std::uint8_t> text, const std::string& name);

}  // namespace chimera
