#pragma once
// Text files in blocks that can be tokenized independently, for the workers of `chimera tokenize` (tokenize.h). A block
// is whole lines of JSONL, or a part of a text that ends where the tokenizer allows a cut (Tokenizer::find_cut()).

#include <cstdint>
#include <string>
#include <vector>

#include "core/file_descriptor.h"
#include "tokenizer/tokenizer.h"

namespace chimera {

/// A text file, or a line of a JSONL file, is one document.
struct Inputs {
  std::vector<std::string> paths;  ///< "-": standard input
  std::string field;               ///< JSONL field
  bool all_jsonl = false;          ///< if false, only *.jsonl and *.ndjson are
};

struct InputPlace {
  std::int64_t file = 0;    ///< index of the path
  std::int64_t offset = 0;  ///< byte position
  std::int64_t line = 1;    ///< from 1; only for JSONL
  bool in_document = false;
  friend bool operator==(const InputPlace&, const InputPlace&) = default;
};

struct InputBlock {
  std::string bytes;  ///< `size` bytes and zeros as padding
  std::size_t size = 0;
  bool jsonl = false;
  bool begins_document = true;
  bool ends_document = true;
  InputPlace begin;
  InputPlace end;
  [[nodiscard]] std::string_view text() const { return std::string_view(bytes).substr(0, size); }
};

/// Reads the files in order. Throws ConfigError if a file cannot be read, or if its first bytes are neither text nor
/// JSONL.
class InputReader {
 public:
  /// `place` is the end of an earlier block. The tokenizer must outlive the reader.
  InputReader(Inputs inputs, const Tokenizer& tokenizer, InputPlace place = {}, std::size_t block_bytes = kBlockBytes);

  /// Returns false at the end.
  bool next(InputBlock& block);

  static constexpr std::size_t kBlockBytes = std::size_t{1} << 20;

 private:
  void open();
  /// Reads until `ahead_` has `bytes` bytes or the file ends.
  void fill(std::size_t bytes);
  [[nodiscard]] std::size_t end_of_lines();
  [[nodiscard]] std::size_t end_of_part();
  [[nodiscard]] const std::string& path() const { return inputs_.paths[static_cast<std::size_t>(place_.file)]; }

  Inputs inputs_;
  const Tokenizer& tokenizer_;
  InputPlace place_;
  std::size_t block_bytes_;
  FileDescriptor file_;
  bool is_open_ = false;
  bool at_end_ = false;  // of the current file
  std::string ahead_;    // read, but not in a block yet
};

/// Returns 0 if a file is a stream. Throws ConfigError if one is a directory or unreadable.
[[nodiscard]] std::int64_t total_bytes(const Inputs& inputs);

/// Returns whether an input is standard input or a pipe. Throws as total_bytes() does.
[[nodiscard]] bool has_stream(const Inputs& inputs);

[[nodiscard]] bool is_jsonl(const Inputs& inputs, const std::string& path);

}  // namespace chimera
