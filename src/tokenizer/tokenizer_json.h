#pragma once

// tokenizer.json: one file with vocabulary, merges, added tokens and all steps of a pipeline. Chimera reads those of
// BPE and WordPiece, and writes one for bytes as tokens. All readers throw ConfigError, naming file and position, for
// malformed or unsupported content.

#include <memory>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_config.h"

namespace chimera {

/// Returns a tokenizer.json that maps each byte to its own id. Special tokens start at 256; the template adds [CLS] and
/// [SEP] among them as BERT does.
[[nodiscard]] std::string byte_tokenizer_json(const std::vector<std::string>& special_tokens);

/// Ignores the layout.
[[nodiscard]] bool is_byte_tokenizer_json(const std::string& text);

/// `config` is the tokenizer_config.json beside the file. Its eos_token, which must exist, ends documents; without one
/// a usual token does. Texts have the ids of AutoTokenizer (transformers 5): tokens of the vocabulary that `config`
/// names are special, and a setting that contradicts the file throws ConfigError.
[[nodiscard]] std::unique_ptr<Tokenizer> tokenizer_from_json(const std::string& text, const std::string& source,
                                                             const TokenizerConfig& config = {});

}  // namespace chimera
