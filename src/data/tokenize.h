#pragma once
// Files of text to files of tokens: `chimera tokenize`.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/block_encoder.h"
#include "data/token_writer.h"

namespace chimera {

struct TokenizeOptions {
  Inputs inputs;
  std::string tokenizer;  ///< as open_tokenizer has it
  std::string output;     ///< the prefix of the files; "-": ids as text, handed to `print`
  TokenFileFormat format = TokenFileFormat::Megatron;
  std::string end_of_document;  ///< a token; empty: the tokenizer's, or for "-" none; "none": none
  InvalidText invalid = InvalidText::Refuse;
  EmptyDocument empty = EmptyDocument::Refuse;
  int workers = 1;
  std::int64_t save_every = std::int64_t{256} << 20;  ///< bytes of input after which a broken run can go on
  std::size_t block_bytes = InputReader::kBlockBytes;
  std::function<void(const std::string& text)> print = {};
};

/// What has been done, in this run and all.
struct TokenizeReport {
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
  std::int64_t skipped = 0;      ///< empty documents
  std::int64_t bytes = 0;        ///< of input, of this run
  std::int64_t resumed = 0;      ///< bytes that an earlier run had done
  std::int64_t total_bytes = 0;  ///< of all input; 0: not known
  double seconds = 0;            ///< since the tokenizer was loaded
  std::vector<std::string> files = {};
};

/// Tokenizes everything, in the order of the inputs whatever the workers. The files get their names when they are
/// whole. What is done is noted in PREFIX.resume from time to time; the same call goes on from there, where it reads
/// files that have not changed since, and not a stream. Calls `progress` after each block. Throws ConfigError for
/// anything wrong with input, tokenizer or output; then nothing is left behind but what a call can go on from.
TokenizeReport tokenize(const TokenizeOptions& options, const std::function<void(const TokenizeReport&)>& progress);

}  // namespace chimera
