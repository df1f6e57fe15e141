#pragma once

// Opens training data, and finds its format: a text, token files of Megatron, llm.c or nanoGPT (token_format.h), or a
// folder of such files (shards). Other content (an archive, a table, JSON, UTF-16) is an error, because a run would
// otherwise train on its bytes as if they were text. The error message has the command that converts it.

#include <functional>
#include <limits>
#include <optional>

#include "data/token_stream.h"

namespace chimera {

/// What tokens mean for the model.
struct TokenOptions {
  /// Size of the model's vocabulary. Token ids must be below it; the default allows all.
  std::int64_t vocabulary = std::numeric_limits<std::int64_t>::max();
  /// Token that ends a document in raw files; in llm.c files, the token that starts one.
  std::optional<std::int64_t> end_of_document = {};
  /// Tokenizer of text files of at most kMaxTextBytes. If absent, bytes are tokens.
  std::function<std::vector<std::int32_t>(const DataFile& text)> encode = {};
};

/// Longer texts require `chimera tokenize`.
inline constexpr std::int64_t kMaxTextBytes = std::int64_t{256} << 20;

/// The tokens of a path. A path that is a file has only `training`.
struct FoundTokens {
  std::shared_ptr<const TokenStream> training;    ///< null if a folder has validation shards only
  std::shared_ptr<const TokenStream> validation;  ///< null unless a folder has validation shards
  std::string format;                             ///< name for messages, such as "Megatron tokens"
  std::string ignored_files_note;  ///< a line for the user that names files of a folder that are not read; may be empty
};

/// Returns the layout of an llm.c file, or nothing if the file does not begin with llm.c's magic number. Throws
/// ConfigError if the header contradicts the file or declares other content.
[[nodiscard]] std::optional<TokenLayout> llmc_layout(const DataFile& file, const TokenOptions& options);

/// Opens `path`. The first match is the format:
/// - a folder: all its *.bin or all its *.txt, in ascending order of their names, without hidden files (.NAME). The
/// word "val" or "validation" in a name marks a validation shard. A folder with both kinds, or with neither, is an
/// error.
/// - PREFIX, PREFIX.bin or PREFIX.idx, if PREFIX.idx exists: Megatron's format.
/// - a file with a magic number of llm.c: that format.
/// - another *.bin: raw 16-bit tokens.
/// - any other file: text.
/// Throws ConfigError if a file is missing, empty, truncated or inconsistent, or shows another format: an archive, a
/// table, UTF-16, JSON, 32-bit tokens without a header.
[[nodiscard]] FoundTokens open_tokens(const std::string& path, const TokenOptions& options);

}  // namespace chimera
