#pragma once

// Tokens in one file, whatever its format: where they begin, how wide they are, and where documents begin. Opening
// (open_tokens.h) finds the format and makes the TokenLayout; reading is the same for all formats.

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/data_file.h"
#include "data/token_format.h"

namespace chimera {

/// Megatron's .idx. Non-empty sequences must cover the .bin, and non-empty documents the sequences, without gaps.
/// Entries are read on demand.
class MegatronIndex {
 public:
  /// Checks the whole index of a .bin of `token_bytes` bytes. Throws ConfigError with path, entry and expected value.
  MegatronIndex(DataFile file, std::int64_t token_bytes);

  [[nodiscard]] const DataFile& file() const { return file_; }
  [[nodiscard]] TokenType type() const { return type_; }
  [[nodiscard]] std::int64_t documents() const { return documents_; }
  /// Returns the number of tokens for documents(). Throws Error if the index has changed.
  [[nodiscard]] std::int64_t document_start(std::int64_t document) const;
  /// Returns the document of token `position`.
  [[nodiscard]] std::int64_t document_of(std::int64_t position) const;

 private:
  void check_header();
  void check_sequences() const;
  void check_documents() const;
  // Bytes of the file at which the lists begin.
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
  std::int64_t documents_ = 0;  ///< entries of the list - 1
};

struct DocumentMark {
  std::int64_t id = 0;
  bool begins = false;  ///< first token of a document (llm.c) instead of the last (nanoGPT)
};

inline constexpr std::string_view kTextFormat = "text";

/// Location and type of the tokens in a file.
struct TokenLayout {
  std::int64_t offset = 0;  ///< byte of the first token
  std::int64_t count = 0;
  TokenType type = TokenType::U8;
  std::string_view format = kTextFormat;  ///< for messages
  /// without mark and index, the file is one document
  std::optional<DocumentMark> mark = {};
  std::optional<MegatronIndex> index = {};  ///< document boundaries
};

/// Tokens of an open file, which are read on demand.
class TokenFile {
 public:
  /// Reads reject ids of `vocabulary` and above. The layout must be within the file.
  TokenFile(DataFile file, TokenLayout layout, std::int64_t vocabulary = std::numeric_limits<std::int64_t>::max());

  [[nodiscard]] std::int64_t size() const { return layout_.count; }
  [[nodiscard]] const DataFile& file() const { return file_; }
  [[nodiscard]] const TokenLayout& layout() const { return layout_; }
  /// Returns whether an index, or a mark of the vocabulary, separates documents.
  [[nodiscard]] bool separates_documents() const {
    return layout_.index || (layout_.mark && layout_.mark->id < vocabulary_);
  }

  /// Throws ConfigError for an id outside the vocabulary; Error if the file has shrunk; std::out_of_range beyond the
  /// end.
  void read(std::int64_t first, std::span<std::int64_t> tokens) const;
  /// Appends the document starts among the `count` - 1 tokens after `first`, as positions in the file.
  void add_document_starts(std::int64_t first, std::int64_t count, std::vector<std::int64_t>& starts) const;

 private:
  DataFile file_;
  TokenLayout layout_;
  std::int64_t vocabulary_;
};

}  // namespace chimera
