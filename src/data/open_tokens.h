#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/token_stream.h"

namespace chimera {

struct TokenOptions {
  /// Vocabulary size of the model.
  std::int64_t vocabulary = std::numeric_limits<std::int64_t>::max();
  /// The token that ends documents in raw files; in llm.c files, overrides the token that starts them.
  std::optional<std::int64_t> end_of_document = {};
  /// Tokenizer of text files of at most kMostTextBytes. If absent, bytes are tokens.
  std::function<std::vector<std::int32_t>(const DataFile& text)> encode = {};
};

/// Longer texts require `chimera tokenize`.
inline constexpr std::int64_t kMostTextBytes = std::int64_t{256} << 20;

struct FoundTokens {
  std::shared_ptr<const TokenStream> training;    ///< null if a folder has only validation shards
  std::shared_ptr<const TokenStream> validation;  ///< null if there are no validation shards
  std::string format;                             ///< name of the format for messages, such as "Megatron tokens"
  std::string passed_over;                        ///< line about the entries of a folder that are not read, or empty
};

/// Returns the layout of an llm.c shard, or nothing without its magic number. Throws ConfigError, naming the file, if
/// the header contradicts the file or declares other content.
[[nodiscard]] std::optional<TokenLayout> llmc_layout(const DataFile& file, const TokenOptions& options);

/// Opens `path`. The first match is the format:
/// - a folder: its *.bin or its *.txt, by name, without hidden files (.NAME). The word "val" or "validation" in a name
/// marks a validation shard.
/// - PREFIX, PREFIX.bin or PREFIX.idx, if PREFIX.idx exists: Megatron's format.
/// - a file with a magic number of llm.c: that format.
/// - another *.bin: raw 16-bit tokens.
/// - any other file: text.
/// Throws ConfigError, naming the file, if a file is missing, empty, truncated or inconsistent, or if its content shows
/// another format: an archive, a table, UTF-16, JSON, tokens of 32 bits without a header.
[[nodiscard]] FoundTokens open_tokens(const std::string& path, const TokenOptions& options);

}  // namespace chimera
