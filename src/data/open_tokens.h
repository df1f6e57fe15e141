#pragma once

// Opens data by its form: a text, tokens of Megatron, llm.c or nanoGPT (token_format.h), or a folder of such shards.
// Other content (an archive, a table, JSON, UTF-16) is refused, with the command that converts it, before a run trains
// on its bytes.

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
  std::int64_t vocabulary = std::numeric_limits<std::int64_t>::max();
  /// Token that ends documents in raw files; in llm.c files, the token that starts them.
  std::optional<std::int64_t> end_of_document = {};
  /// Tokenizer of text files of at most kMostTextBytes. If absent, bytes are tokens.
  std::function<std::vector<std::int32_t>(const DataFile& text)> encode = {};
};

/// Longer texts require `chimera tokenize`.
inline constexpr std::int64_t kMostTextBytes = std::int64_t{256} << 20;

struct FoundTokens {
  std::shared_ptr<const TokenStream> training;
  std::shared_ptr<const TokenStream> validation;
  std::string format;       ///< name for messages, such as "Megatron tokens"
  std::string passed_over;  ///< line about a folder's entries that are not read, or empty
};

/// Returns nothing without llm.c's magic number. Throws ConfigError if the header contradicts the file or declares
/// other content.
[[nodiscard]] std::optional<TokenLayout> llmc_layout(const DataFile& file, const TokenOptions& options);

/// Opens `path`. The first match is the format:
/// - a folder: its *.bin or its *.txt, by name, without hidden files (.NAME). The word "val" or "validation" in a name
/// marks a validation shard.
/// - PREFIX, PREFIX.bin or PREFIX.idx, if PREFIX.idx exists: Megatron's format.
/// - a file with a magic number of llm.c: that format.
/// - another *.bin: raw 16-bit tokens.
/// - any other file: text.
/// Throws ConfigError if a file is missing, empty, truncated or inconsistent, or shows another format: an archive, a
/// table, UTF-16, JSON, 32-bit tokens without a header.
[[nodiscard]] FoundTokens open_tokens(const std::string& path, const TokenOptions& options);

}  // namespace chimera
