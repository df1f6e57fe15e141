#pragma once
// Files of text as documents, in blocks that can be tokenized apart.

#include <cstdint>
#include <string>
#include <vector>

#include "core/file_descriptor.h"
#include "tokenizer/tokenizer.h"

namespace chimera {

/// What is read. A text file is one document; a JSONL file has one a line, in a field of its object.
struct Inputs {
  std::vector<std::string> paths;  ///< "-": standard input
  std::string field;               ///< of JSONL
  bool all_jsonl = false;          ///< every path; otherwise those that end in .jsonl
};

/// Where a block ends, and the next one begins.
struct InputPlace {
  std::int64_t file = 0;     ///< index of the path
  std::int64_t offset = 0;   ///< bytes
  std::int64_t line = 1;     ///< of JSONL
  bool in_document = false;  ///< a text goes on
  friend bool operator==(const InputPlace&, const InputPlace&) = default;
};

/// Part of a file: whole lines of JSONL, or a part of a text that encodes to the ids that it has in the whole.
struct InputBlock {
  std::string bytes;  ///< followed by zeros, which `size` does not count
  std::size_t size = 0;
  bool jsonl = false;
  bool begins_document = true;
  bool ends_document = true;
  InputPlace begin;
  InputPlace end;
  [[nodiscard]] std::string_view text() const { return std::string_view(bytes).substr(0, size); }
};

/// Reads the files one after the other. Everything throws ConfigError, naming the path, for what cannot be read.
class InputReader {
 public:
  /// The tokenizer must outlive this. Begins at `place`, where an earlier reader ended a block. `block_bytes`: about so
  /// many bytes a block.
  InputReader(Inputs inputs, const Tokenizer& tokenizer, InputPlace place = {}, std::size_t block_bytes = kBlockBytes);

  /// The next block; false at the end of all.
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
  bool at_end_ = false;  // of the file
  std::string ahead_;    // read, and not yet in a block
};

/// Bytes of all files together; 0 where one of them is a stream. Throws ConfigError for one that cannot be read or is a
/// directory.
[[nodiscard]] std::int64_t total_bytes(const Inputs& inputs);

/// Whether one of the inputs can be read but once, from its start: standard input, a pipe. Throws as total_bytes().
[[nodiscard]] bool has_stream(const Inputs& inputs);

/// Whether a path is read as JSONL.
[[nodiscard]] bool is_jsonl(const Inputs& inputs, const std::string& path);

}  // namespace chimera
