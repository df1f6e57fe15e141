#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_config.h"

// Bytes as tokens, in a file that other programs read.

// Readers of tokenizer files. All throw ConfigError, naming file and place, for what is malformed or not supported.

namespace chimera {

/// A tokenizer.json that makes each byte of a text the token with that id: a byte-level BPE without merges. The special
/// tokens follow from 256 on. Where [CLS] and [SEP] are among them, its template sets these around texts as BERT has
/// them.
[[nodiscard]] std::string byte_tokenizer_json(const std::vector<std::string>& special_tokens);

/// Whether a tokenizer.json says the same as byte_tokenizer_json() of some special tokens does, however it is laid out.
[[nodiscard]] bool is_byte_tokenizer_json(const std::string& text);

/// Hugging Face's tokenizer.json. `source` is what messages call it; `end_of_document` is the token that the eos_token
/// of tokenizer_config.json names, which must be one of its tokens; empty: a usual one.
[[nodiscard]] std::unique_ptr<Tokenizer> tokenizer_from_json(const std::string& text, const std::string& source,
                                                             const std::string& end_of_document = "");

/// A GPT-2 tokenizer, and below one of BERT's. Both refuse a `config` of other pipelines or tokens than these have.
/// This one is of vocab.json (tokens to ids) and merges.txt (a pair a line).
[[nodiscard]] std::unique_ptr<Tokenizer> tokenizer_from_merges(const std::string& vocabulary,
                                                               const std::string& vocabulary_source,
                                                               const std::string& merges,
                                                               const std::string& merges_source,
                                                               const TokenizerConfig& config = {});

/// The tokenizer of vocab.txt (a token a line, ids from 0).
[[nodiscard]] std::unique_ptr<Tokenizer> tokenizer_from_words(const std::string& text, const std::string& source,
                                                              const TokenizerConfig& config = {});

}  // namespace chimera
