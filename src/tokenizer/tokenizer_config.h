#pragma once
// What lies beside a vocabulary: tokenizer_config.json and added_tokens.json.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/word_cache.h"

namespace chimera {

/// A token that a file lists beside the vocabulary.
struct ListedToken {
  std::string content;
  TokenId id = 0;
  std::string source;  ///< the file
};

/// What these files say. The token of eos_token matters to every tokenizer; the rest to vocab.json and vocab.txt, which
/// have no other place for it.
struct TokenizerConfig {
  std::string tokenizer_class;                    ///< empty: not named
  std::map<std::string, std::string> named = {};  ///< "eos_token" and its like: the token
  std::vector<ListedToken> listed = {};
  BertStep bert = {};
  std::string unsupported = {};  ///< a field that asks for what vocab.json and vocab.txt do not have here; empty: none

  /// The token of a field such as "eos_token", empty where none is named.
  [[nodiscard]] std::string token(const std::string& field) const;
};

/// Reads a tokenizer_config.json. Throws ConfigError, naming `source` and the place, for what is malformed.
[[nodiscard]] TokenizerConfig read_tokenizer_config(const std::string& text, const std::string& source);

/// Adds the tokens of an added_tokens.json: {"token": id, ...}. Throws as above.
void add_listed_tokens(const std::string& text, const std::string& source, TokenizerConfig& config);

/// The special tokens of a vocabulary: those that `config` names and, where it names none, those in `usual`, by the
/// names of the same fields. Throws ConfigError where `config` names or lists a token that is not among them or has
/// another id, or asks for what is not supported; `source` is the file of the vocabulary.
[[nodiscard]] std::vector<AddedToken> special_tokens(const TokenizerConfig& config,
                                                     const std::map<std::string, std::string>& usual,
                                                     const TextMap<TokenId>& vocabulary, const std::string& source);

}  // namespace chimera
