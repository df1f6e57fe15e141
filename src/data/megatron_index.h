#pragma once
// Megatron's .idx: where the documents of a file of tokens begin.

#include <cstdint>

#include "data/data_file.h"
#include "data/token_format.h"

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

}  // namespace chimera
