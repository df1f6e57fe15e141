#pragma once

// Converts text files to token files: `chimera tokenize`. One thread reads blocks of text that can be tokenized
// independently (text_inputs.h), several threads encode them, and the first thread writes the tokens in the order of
// the text (token_writer.h):
//
//   InputReader -> InputBlock -> thread 1 .. n -> EncodedBlock -> TokenWriter, PREFIX.resume
//
// After every `save_every` bytes, the file PREFIX.resume records the positions in the input and the output, so that an
// interrupted run can continue.

#include <functional>

#include "data/text_inputs.h"
#include "data/token_writer.h"

namespace chimera {

/// Treatment of bytes that are not UTF-8: an error, or replacement by U+FFFD.
enum class InvalidText : std::uint8_t { Refuse, Replace };
template <>
inline constexpr auto kNames<InvalidText> = in_order<InvalidText>("refuse", "replace");

/// Treatment of an empty document: an error, no output, or an empty document in the output.
enum class EmptyDocument : std::uint8_t { Refuse, Skip, Keep };
template <>
inline constexpr auto kNames<EmptyDocument> = in_order<EmptyDocument>("refuse", "skip", "keep");

/// The flags of `chimera tokenize`.
struct TokenizeOptions {
  Inputs inputs;
  std::string tokenizer;  ///< folder, file or "bytes": argument of open_tokenizer() (tokenizer/tokenizer_folder.h)
  std::string output;     ///< prefix of the output files; "-": pass the ids as text to `print`
  TokenFileFormat format = TokenFileFormat::Megatron;
  /// Token that is added after each document (llm.c: before it); "none": no token. Empty: the tokenizer's own
  /// end-of-text token, but none if `output` is "-".
  std::string end_of_document;
  InvalidText invalid = InvalidText::Refuse;
  EmptyDocument empty = EmptyDocument::Refuse;
  int workers = 1;                                          ///< threads that encode
  std::int64_t save_every = std::int64_t{256} << 20;        ///< bytes of input between two saves of the progress
  std::size_t block_bytes = InputReader::kBlockBytes;       ///< size of the blocks of text
  bool overwrite = false;                                   ///< whether existing output files may be replaced
  std::function<void(const std::string& text)> print = {};  ///< receives the ids as text if `output` is "-"
};

/// Progress and result. The counts include earlier interrupted runs; only `bytes` and `seconds` are of this run.
struct TokenizeProgress {
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
  std::int64_t skipped = 0;             ///< empty documents
  std::int64_t bytes = 0;               ///< read in this run
  std::int64_t resumed = 0;             ///< bytes read in earlier runs
  std::int64_t total_bytes = 0;         ///< 0: unknown
  double seconds = 0;                   ///< since the tokenizer was loaded
  std::vector<std::string> files = {};  ///< paths of the output files
};

/// Tokenizes the inputs in order. Progress is saved in PREFIX.resume, and the same call continues from there if the
/// inputs are files and have not changed. Calls `progress`, which must not be empty, after each block, in the calling
/// thread, and returns the result. Throws ConfigError if input, tokenizer or output is invalid. If the call fails
/// before any progress is saved, it deletes its unfinished output files. An output must not be an input, and must not
/// exist unless `overwrite` is set.
TokenizeProgress tokenize(const TokenizeOptions& options, const std::function<void(const TokenizeProgress&)>& progress);

}  // namespace chimera
