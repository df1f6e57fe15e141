#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/data_file.h"
#include "data/token_format.h"

// Megatron's .idx: where the documents of a file of tokens begin.

// Token ids in one file, whatever they are stored as.

namespace chimera {

/// An index that was found to describe its .bin: sequences of at least one token that follow each other from the first
/// byte to the last, and documents of at least one sequence that do the same. So the tokens of the .bin, in order, are
/// those of the documents, in order. The entries stay in the file and are read when asked for.
class MegatronIndex {
 public:
  /// Reads the whole index once, in blocks; `token_bytes` is the size of the .bin. Throws ConfigError, with the path,
  /// the entry and what would be right, for an index that does not describe that file. Megatron's own reader checks
  /// the header alone.
  MegatronIndex(DataFile file, std::int64_t token_bytes);

  [[nodiscard]] const DataFile& file() const { return file_; }
  [[nodiscard]] TokenType type() const { return type_; }
  [[nodiscard]] std::int64_t documents() const { return documents_; }
  /// The number of the first token of a document; for `document` = documents(), the number of tokens. Throws Error
  /// where the index has changed since it was checked.
  [[nodiscard]] std::int64_t document_start(std::int64_t document) const;
  /// The document that token `position` belongs to, by binary search.
  [[nodiscard]] std::int64_t document_of(std::int64_t position) const;

 private:
  void check_header();
  void check_sequences() const;
  void check_documents() const;
  [[nodiscard]] std::int64_t lengths_at() const;
  [[nodiscard]] std::int64_t pointers_at() const;
  [[nodiscard]] std::int64_t documents_at() const;

  DataFile file_;
  std::int64_t token_bytes_;
  TokenType type_ = TokenType::U16;
  std::int64_t sequences_ = 0;
  std::int64_t documents_ = 0;  ///< one less than entries of the list
};

/// The token that separates documents, where nothing else tells them apart.
struct DocumentMark {
  std::int64_t id = 0;
  bool begins = false;  ///< it is the first token of a document, as llm.c has it; else the last, as nanoGPT has it
};

/// The format of a text, whatever made its tokens.
inline constexpr std::string_view kTextFormat = "text";

/// What a file of tokens is.
struct TokenLayout {
  std::int64_t offset = 0;  ///< of the first token, in bytes
  std::int64_t count = 0;   ///< tokens
  TokenType type = TokenType::U8;
  std::string_view format = kTextFormat;    ///< for people
  std::optional<DocumentMark> mark = {};    ///< nothing, and no index: the file is one document
  std::optional<MegatronIndex> index = {};  ///< says where documents begin
};

/// An open file of tokens. They are read when asked for, as 64-bit numbers; the file takes no memory.
class TokenFile {
 public:
  /// Ids of `vocabulary` and above are refused when they are read. The layout lies within the file.
  TokenFile(DataFile file, TokenLayout layout, std::int64_t vocabulary = std::numeric_limits<std::int64_t>::max());

  [[nodiscard]] std::int64_t size() const { return layout_.count; }
  [[nodiscard]] const DataFile& file() const { return file_; }
  [[nodiscard]] const TokenLayout& layout() const { return layout_; }

  /// Fills `tokens` from token `first` on. Throws ConfigError, naming the place, for an id outside the vocabulary;
  /// Error where the file has shrunk; std::out_of_range for tokens beyond the end, which no caller asks for.
  void read(std::int64_t first, std::span<std::int64_t> tokens) const;
  /// Adds those of the `count` - 1 tokens after `first` that begin a document, counted from the file's start.
  void add_document_starts(std::int64_t first, std::int64_t count, std::vector<std::int64_t>& starts) const;

 private:
  void require_ids(std::int64_t first, std::span<const std::int64_t> tokens) const;

  DataFile file_;
  TokenLayout layout_;
  std::int64_t vocabulary_;
};

}  // namespace chimera
