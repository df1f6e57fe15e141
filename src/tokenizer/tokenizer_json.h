#pragma once

// Reads and writes tokenizer.json, the file of a Hugging Face tokenizer: vocabulary, merges, added tokens and all steps
// from text to ids and back. Chimera reads the files of BPE and WordPiece tokenizers, and writes a file for byte
// tokens. Malformed or unsupported content is a ConfigError that names file and position.

#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_config.h"

namespace chimera {

/// Returns a tokenizer.json for which the id of each byte is its value. The ids of special tokens start at 256. If
/// [CLS] and [SEP] are among them, they are added to a model's input as for BERT.
[[nodiscard]] std::string byte_tokenizer_json(const std::vector<std::string>& special_tokens);

/// Returns whether the text is a result of byte_tokenizer_json(). White space and the order of fields do not matter.
[[nodiscard]] bool is_byte_tokenizer_json(const std::string& text);

/// Returns the tokenizer of a tokenizer.json. `source` names the file in messages. `config` is the
/// tokenizer_config.json in the same folder. Its eos_token, which must be in the vocabulary, ends documents; if it has
/// none, documents end with a usual token such as <|endoftext|> that the vocabulary has. Texts get the same ids as by
/// AutoTokenizer (transformers 5): tokens of the vocabulary that `config` names are special, and a setting of `config`
/// that contradicts the file is a ConfigError.
[[nodiscard]] std::unique_ptr<Tokenizer> tokenizer_from_json(const std::string& text, const std::string& source,
                                                             const TokenizerConfig& config = {});

}  // namespace chimera
