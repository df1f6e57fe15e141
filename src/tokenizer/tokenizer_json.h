#pragma once
// Readers of tokenizer files. All throw ConfigError, naming file and place, for what is malformed or not supported.

#include <memory>
#include <string>

#include "tokenizer/tokenizer.h"

namespace chimera {

/// Hugging Face's tokenizer.json. `source` is what messages call it; `end_of_document` names the token, empty: a usual
/// one.
[[nodiscard]] std::unique_ptr<Tokenizer> tokenizer_from_json(const std::string& text, const std::string& source,
                                                             const std::string& end_of_document = "");

/// A GPT-2 tokenizer of vocab.json (tokens to ids) and merges.txt (a pair a line).
[[nodiscard]] std::unique_ptr<Tokenizer> tokenizer_from_merges(const std::string& vocabulary,
                                                               const std::string& vocabulary_source,
                                                               const std::string& merges,
                                                               const std::string& merges_source);

/// A BERT tokenizer of vocab.txt (a token a line, ids from 0).
[[nodiscard]] std::unique_ptr<Tokenizer> tokenizer_from_words(const std::string& text, const std::string& source,
                                                              bool lowercase);

}  // namespace chimera
