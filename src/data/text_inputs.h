#pragma once
// Reads text files in blocks that can be tokenized independently, for the threads of `chimera tokenize` (tokenize.h). A
// block is whole lines of JSONL, or a part of a text. A text is only cut where this does not change its tokens
// (Tokenizer::find_cut()).

#include "core/file_descriptor.h"
#include "tokenizer/tokenizer.h"

namespace chimera {

/// The input files. A text file, or a line of a JSONL file, is one document.
struct Inputs {
  std::vector<std::string> paths;  ///< "-": standard input
  std::string field;               ///< JSONL: field of the object in each line that holds the text
  bool all_jsonl = false;          ///< whether all files are JSONL; if false, only *.jsonl and *.ndjson are
};

/// A position between two blocks, from which a reader can continue.
struct InputPosition {
  std::int64_t file = 0;     ///< index of the path
  std::int64_t offset = 0;   ///< byte position
  std::int64_t line = 1;     ///< from 1; only for JSONL
  bool in_document = false;  ///< whether a document has begun before and continues here
  friend bool operator==(const InputPosition&, const InputPosition&) = default;
};

/// A block of one file: lines of JSONL, each of which is a document, or a part of a text file, which is one document.
struct InputBlock {
  std::string bytes;     ///< `size` bytes of the file, then 64 zeros, because a JSON parser may read beyond the end
  std::size_t size = 0;  ///< without the zeros
  bool jsonl = false;    ///< whether the file is JSONL
  InputPosition begin;   ///< position of the first byte
  InputPosition end;     ///< position after the block; a reader that starts here returns the next block
  [[nodiscard]] std::string_view text() const { return std::string_view(bytes).substr(0, size); }
  /// Return whether the block is the first, or the last, of a text file. Always true for JSONL.
  [[nodiscard]] bool begins_document() const { return !begin.in_document; }
  [[nodiscard]] bool ends_document() const { return !end.in_document; }
};

/// Reads the files in order, block by block, in one thread. Throws ConfigError if a file cannot be read, or if its
/// first bytes are neither text nor JSONL.
class InputReader {
 public:
  /// Starts at the first file or, to continue, at `place`, the end of a block of an earlier reader. `block_bytes` is
  /// the usual size of a block. The tokenizer must outlive the reader.
  InputReader(Inputs inputs, const Tokenizer& tokenizer, InputPosition place = {},
              std::size_t block_bytes = kBlockBytes);

  /// Reads the next block. Returns false at the end of the last file.
  bool next(InputBlock& block);

  static constexpr std::size_t kBlockBytes = std::size_t{1} << 20;

 private:
  /// Opens the file of `place_` at its offset. Checks the content of a file that is read from its beginning.
  void open();
  /// Reads until `ahead_` has `bytes` bytes or the file ends.
  void fill(std::size_t bytes);
  /// Returns the end of the next block in `ahead_`: after a line of JSONL, or at a cut of a text.
  [[nodiscard]] std::size_t end_of_lines();
  [[nodiscard]] std::size_t end_of_part();
  [[nodiscard]] const std::string& path() const { return inputs_.paths[static_cast<std::size_t>(place_.file)]; }

  Inputs inputs_;
  const Tokenizer& tokenizer_;
  InputPosition place_;
  std::size_t block_bytes_;
  FileDescriptor file_;
  bool is_open_ = false;
  bool at_end_ = false;  // of the current file
  std::string ahead_;    // read, but not in a block yet
};

/// Returns the sum of the file sizes, or 0 if an input is a stream. Throws ConfigError if an input is a directory or
/// unreadable.
[[nodiscard]] std::int64_t total_bytes(const Inputs& inputs);

/// Returns whether an input is standard input or a pipe, which an interrupted run cannot read again. Throws as
/// total_bytes() does.
[[nodiscard]] bool has_stream(const Inputs& inputs);

/// Returns whether the file `path` of `inputs` is read as JSONL.
[[nodiscard]] bool is_jsonl(const Inputs& inputs, const std::string& path);

}  // namespace chimera
