#pragma once
// What a path holds: text, tokens in one of three formats, or a folder of such files.

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/token_stream.h"

namespace chimera {

/// How files become tokens.
struct TokenOptions {
  /// The size of the model's vocabulary: ids are below it.
  std::int64_t vocabulary = std::numeric_limits<std::int64_t>::max();
  /// The token that ends documents in raw files, and begins them in llm.c's, in place of theirs.
  std::optional<std::int64_t> end_of_document = {};
  /// The ids of a text file of at most kMostTextBytes. Nothing: its bytes are its tokens.
  std::function<std::vector<std::int32_t>(const DataFile& text)> encode = {};
};

/// A longer text is for `chimera tokenize`, which need not keep it in memory: 256 MiB.
inline constexpr std::int64_t kMostTextBytes = std::int64_t{256} << 20;

/// What a path holds: at least one of the two.
struct FoundTokens {
  std::shared_ptr<const TokenStream> training;    ///< null where a folder has shards for validation alone
  std::shared_ptr<const TokenStream> validation;  ///< null where no shards are kept apart for that
  std::string format;                             ///< for people: "text", "Megatron tokens", "a folder of 12 shards"
};

/// The layout of a shard of llm.c's; nothing where the file does not begin with one of its magic numbers. Throws
/// ConfigError, naming the file, where the header does not describe the file, or says that it holds something else.
[[nodiscard]] std::optional<TokenLayout> llmc_layout(const DataFile& file, const TokenOptions& options);

/// Opens what `path` names. It is told by content, in this order:
/// - a folder: its *.bin in the order of their names, or its *.txt where it has none; other files are not read. Shards
///   with the word "val" or "validation" in their name are for validation.
/// - PREFIX, PREFIX.bin or PREFIX.idx, where PREFIX.idx is there: Megatron's format.
/// - a file that begins with one of llm.c's magic numbers: that format.
/// - another *.bin: raw 16-bit tokens, which nothing in the file says.
/// - anything else: text.
/// Throws ConfigError, naming the file, for what is missing, empty, truncated, or contradicts itself.
[[nodiscard]] FoundTokens open_tokens(const std::string& path, const TokenOptions& options);

}  // namespace chimera
