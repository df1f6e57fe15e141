#pragma once

// Tokens in one file of any format. open_tokens() (open_tokens.h) detects the format and makes a TokenLayout, which
// says where the tokens begin in the file, how many bytes each takes, and how documents are separated. With it,
// TokenFile reads all formats alike.

#include <limits>
#include <vector>

#include "data/data_file.h"
#include "data/token_format.h"

namespace chimera {

/// Megatron's index file (.idx, token_format.h), which divides the tokens of the .bin into sequences, and the sequences
/// into documents. There must be no gaps, and no empty sequences or documents. The index stays on the disk; its numbers
/// are read when they are needed.
class MegatronIndex {
 public:
  /// Checks the whole index against a .bin of `token_bytes` bytes. Throws ConfigError if they do not match.
  MegatronIndex(DataFile file, std::int64_t token_bytes);

  [[nodiscard]] const DataFile& file() const { return file_; }
  [[nodiscard]] TokenType type() const { return type_; }
  [[nodiscard]] std::int64_t documents() const { return documents_; }
  /// Returns the position of the first token of a document, counted in tokens from the first token of the .bin.
  /// `document` is 0 to documents(); for documents(), returns the number of tokens. Throws Error if the index has
  /// changed since it was checked.
  [[nodiscard]] std::int64_t document_start(std::int64_t document) const;
  /// Returns the document (from 0) that contains the token at `position`. Throws the errors of document_start().
  [[nodiscard]] std::int64_t document_of(std::int64_t position) const;

 private:
  void check_header();
  void check_sequences() const;
  void check_documents() const;
  // Byte offsets of the three lists in the file.
  [[nodiscard]] static std::int64_t lengths_at() { return sizeof(MegatronIndexHeader); }
  [[nodiscard]] std::int64_t pointers_at() const {
    return lengths_at() + sequences_ * std::int64_t{sizeof(std::int32_t)};
  }
  [[nodiscard]] std::int64_t documents_at() const {
    return pointers_at() + sequences_ * std::int64_t{sizeof(std::int64_t)};
  }

  DataFile file_;
  std::int64_t token_bytes_;
  TokenType type_ = TokenType::U16;
  std::int64_t sequences_ = 0;
  std::int64_t documents_ = 0;  ///< the list in the file has one more element
};

/// Token `id` that separates documents.
struct DocumentMark {
  std::int64_t id = 0;
  bool begins = false;  ///< whether it is the first token of each document (llm.c), not the last (nanoGPT)
};

/// TokenLayout::format of a text, in which each byte is a token or which was tokenized when it was opened.
inline constexpr std::string_view kTextFormat = "text";

/// Location and type of the tokens in a file.
struct TokenLayout {
  std::int64_t offset = 0;  ///< byte of the first token
  std::int64_t count = 0;   ///< number of tokens
  TokenType type = TokenType::U8;
  std::string_view format = kTextFormat;  ///< for messages
  /// If neither `mark` nor `index` is set, the file is one document.
  std::optional<DocumentMark> mark = {};
  std::optional<MegatronIndex> index = {};
};

/// Tokens of an open file, which are read on demand. Any number of threads may read.
class TokenFile {
 public:
  /// Reads reject ids of `vocabulary` and above. The layout must be within the file.
  TokenFile(DataFile file, TokenLayout layout, std::int64_t vocabulary = std::numeric_limits<std::int64_t>::max());

  [[nodiscard]] std::int64_t size() const { return layout_.count; }
  [[nodiscard]] const DataFile& file() const { return file_; }
  [[nodiscard]] const TokenLayout& layout() const { return layout_; }
  /// Returns whether an index, or a mark with an id inside the vocabulary, separates documents.
  [[nodiscard]] bool separates_documents() const {
    return layout_.index || (layout_.mark && layout_.mark->id < vocabulary_);
  }

  /// Reads tokens.size() tokens from `first` on. Throws ConfigError for an id outside the vocabulary, Error if the file
  /// has shrunk since it was opened, std::out_of_range if the range is beyond size().
  void read(std::int64_t first, std::span<std::int64_t> tokens) const;
  /// Appends to `starts`, ascending, the positions of the tokens that start a document, among the tokens first + 1 to
  /// first + count - 1. Positions count the tokens of the file from 0, not bytes. Throws the errors of read() and
  /// MegatronIndex::document_start().
  void add_document_starts(std::int64_t first, std::int64_t count, std::vector<std::int64_t>& starts) const;

 private:
  DataFile file_;
  TokenLayout layout_;
  std::int64_t vocabulary_;
};

}  // namespace chimera
