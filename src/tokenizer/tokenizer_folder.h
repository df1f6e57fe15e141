#pragma once

// Opens tokenizers from files. There are three kinds of folders: with a tokenizer.json, with a vocab.json and a
// merges.txt (GPT-2), or with a vocab.txt (BERT). tokenizer_config.json and added_tokens.json in the same folder name
// special tokens. All three kinds become a pipeline tokenizer (pipeline_tokenizer.h). `chimera tokenize`, training on
// text, generation and exports call open_tokenizer().

#include <array>

#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_config.h"

namespace chimera {

inline constexpr const char* kTokenizerJson = "tokenizer.json";
inline constexpr const char* kTokenizerConfig = "tokenizer_config.json";
/// Main files of the three kinds; the first that exists in a folder determines its kind.
inline constexpr std::array kTokenizerNames = {kTokenizerJson, "vocab.json", "vocab.txt"};

/// Name of the tokenizer that makes each byte a token.
inline constexpr const char* kBytesName = "bytes";

/// Opens "bytes", a tokenizer.json, a vocab.json next to its merges.txt, a vocab.txt, or a folder with one of these
/// (kTokenizerNames). Names of files may have a prefix (gpt2-vocab.json); a file with any other name is read as a
/// tokenizer.json. Throws ConfigError if there is no such file, or for malformed or unsupported content.
[[nodiscard]] std::unique_ptr<Tokenizer> open_tokenizer(const std::string& path);

/// A file of a tokenizer.
struct TokenizerFile {
  std::string path;
  std::string name;  ///< standard name of this file in a tokenizer folder
};

/// Returns the existing files of the tokenizer at `path`, including files that only other programs read. A folder with
/// copies of them, each under its TokenizerFile::name, is the same tokenizer.
[[nodiscard]] std::vector<TokenizerFile> tokenizer_files(const std::string& path);

/// Returns the texts of tokenizer_files(), by TokenizerFile::name; none for "bytes" and for an empty path.
[[nodiscard]] std::map<std::string, std::string> tokenizer_texts(const std::string& path);

/// Returns the main file of the tokenizer at `path` (kTokenizerNames). Returns nullopt for "bytes", and for a folder
/// without such a file. If `path` is a file, it need not exist.
[[nodiscard]] std::optional<TokenizerFile> main_tokenizer_file(const std::string& path);

/// Returns whether the tokenizer at `path` makes each byte a token: it is "bytes", or the tokenizer.json that an export
/// generates for "bytes".
[[nodiscard]] bool makes_bytes(const std::string& path);

/// Makes a GPT-2 tokenizer from the texts of vocab.json and merges.txt; the sources are their paths, for messages.
/// Throws ConfigError if a text is malformed, or if `config` (tokenizer_config.json) describes another kind of
/// tokenizer or other tokens.
[[nodiscard]] std::unique_ptr<Tokenizer> tokenizer_from_merges(const std::string& vocabulary,
                                                               const std::string& vocabulary_source,
                                                               const std::string& merges,
                                                               const std::string& merges_source,
                                                               const TokenizerConfig& config = {});

/// Makes a BERT tokenizer from the text of vocab.txt. Throws ConfigError as tokenizer_from_merges() does.
[[nodiscard]] std::unique_ptr<Tokenizer> tokenizer_from_words(const std::string& text, const std::string& source,
                                                              const TokenizerConfig& config = {});

}  // namespace chimera
