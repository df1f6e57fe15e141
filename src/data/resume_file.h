#pragma once
// What a broken tokenization needs to go on.

#include <optional>
#include <string>

#include "data/text_inputs.h"
#include "data/token_writer.h"

namespace chimera {

/// How far a tokenization has come.
struct TokenizeState {
  InputPlace place;
  WrittenTokens written;
  std::int64_t skipped = 0;
  std::int64_t bytes = 0;  ///< of input
};

/// All that decides what the files of tokens hold: names, sizes and times of the inputs, the tokenizer's files,
/// options. Two calls of equal keys write equal files.
[[nodiscard]] std::string resume_key(const Inputs& inputs, const std::string& tokenizer, const std::string& options);

/// Replaces the file.
void write_resume(const std::string& path, const std::string& key, const TokenizeState& state);

/// What the file says; nothing where there is none, or it has another key, or is malformed.
[[nodiscard]] std::optional<TokenizeState> read_resume(const std::string& path, const std::string& key);

}  // namespace chimera
