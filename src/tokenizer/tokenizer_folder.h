#pragma once

// Tokenizers on disk: the files of each kind, and how to open them. A folder (or one of its files) holds a
// tokenizer.json, a vocab.json beside its merges.txt (GPT-2), or a vocab.txt (BERT); tokenizer_config.json and
// added_tokens.json beside them name special tokens. All three kinds become the same pipeline (pipeline_tokenizer.h).
// `chimera tokenize`, training on text, generation and the export of folders open their tokenizer here.

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_config.h"

namespace chimera {

inline constexpr const char* kTokenizerJson = "tokenizer.json";
inline constexpr const char* kTokenizerConfig = "tokenizer_config.json";
/// In a tokenizer folder; the first that exists determines the kind.
inline constexpr std::array kTokenizerNames = {kTokenizerJson, "vocab.json", "vocab.txt"};

inline constexpr const char* kBytes = "bytes";

/// Opens "bytes", a tokenizer.json, a vocab.json next to its merges.txt, a vocab.txt, or a folder with one of these
/// (kTokenizerNames). Throws ConfigError for malformed or unsupported content.
[[nodiscard]] std::unique_ptr<Tokenizer> open_tokenizer(const std::string& path);

struct TokenizerFile {
  std::string path;
  std::string name;  ///< standard name of this file in a tokenizer folder
};

/// Returns the existing files of a tokenizer, including files that only other programs read. A folder with copies of
/// them, each named TokenizerFile::name, opens as the same tokenizer.
[[nodiscard]] std::vector<TokenizerFile> tokenizer_files(const std::string& path);

/// Returns the file, existing or not, that determines the kind; nothing for "bytes" and folders without it.
[[nodiscard]] std::optional<TokenizerFile> main_tokenizer_file(const std::string& path);

/// Returns whether each byte becomes a token.
[[nodiscard]] bool makes_bytes(const std::string& path);

/// Reads a GPT-2 tokenizer: vocab.json and merges.txt. Throws ConfigError if `config` requires another pipeline or
/// other tokens.
[[nodiscard]] std::unique_ptr<Tokenizer> tokenizer_from_merges(const std::string& vocabulary,
                                                               const std::string& vocabulary_source,
                                                               const std::string& merges,
                                                               const std::string& merges_source,
                                                               const TokenizerConfig& config = {});

/// Reads a BERT tokenizer: vocab.txt. Throws as tokenizer_from_merges() does.
[[nodiscard]] std::unique_ptr<Tokenizer> tokenizer_from_words(const std::string& text, const std::string& source,
                                                              const TokenizerConfig& config = {});

}  // namespace chimera
