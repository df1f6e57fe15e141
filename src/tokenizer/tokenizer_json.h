#pragma once

// tokenizer.json: one file with vocabulary, merges, added tokens and all steps of a pipeline. Chimera reads those of
// BPE and WordPiece, and writes one for bytes as tokens. All readers throw ConfigError, naming file and position, for
// malformed or unsupported content.

#include <memory>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace chimera {

/// Returns a tokenizer.json that maps each byte to its own id. Special tokens start at 256; the template adds [CLS] and
/// [SEP] among them as BERT does.
[[nodiscard]] std::string byte_tokenizer_json(const std::vector<std::string>& special_tokens);

/// Ignores the layout.
[[nodiscard]] bool is_byte_tokenizer_json(const std::string& text);

/// `end_of_document` is the eos_token of tokenizer_config.json, which must exist; empty: a usual token.
[[nodiscard]] std::unique_ptr<Tokenizer> tokenizer_from_json(const std::string& text, const std::string& source,
                                                             const std::string& end_of_document = "");

}  // namespace chimera
