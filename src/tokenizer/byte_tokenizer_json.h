#pragma once
// Bytes as tokens, in a file that other programs read.

#include <string>
#include <vector>

namespace chimera {

/// A tokenizer.json that makes each byte of a text the token with that id: a byte-level BPE without merges. The special
/// tokens follow from 256 on. Where [CLS] and [SEP] are among them, its template sets these around texts as BERT has
/// them.
[[nodiscard]] std::string byte_tokenizer_json(const std::vector<std::string>& special_tokens);

/// Whether a tokenizer.json says the same as byte_tokenizer_json() of some special tokens does, however it is laid out.
[[nodiscard]] bool is_byte_tokenizer_json(const std::string& text);

}  // namespace chimera
