#pragma once
// A model's folder, written anew.

#include <cstdint>
#include <optional>
#include <string>

#include "safetensors/element_type.h"

namespace chimera {

/// Writes the model of the folder `source` into the new folder `output`: every tensor with its own bytes or, where
/// `type` is given, rounded to that, under the names that transformers 5 writes, in files of at most `shard_bytes`.
/// Configs and the tokenizer's files come along; with `tokenizer` (as open_tokenizer takes it, or empty) that one's. No
/// more than a block of a tensor is in memory. Throws ConfigError for a source that ModelFolder refuses, for a
/// tokenizer that cannot be read or has more tokens than the model, and where the output cannot be written; it then is
/// not there.
void convert_folder(const std::string& source, const std::string& output, std::optional<ElementType> type,
                    std::uint64_t shard_bytes, const std::string& tokenizer);

}  // namespace chimera
