#pragma once

// Reads tokenizer_config.json and added_tokens.json, files in a Hugging Face folder that name the special tokens of a
// vocabulary. For the vocabulary files vocab.json and vocab.txt, they also have the settings of the tokenizer. A
// tokenizer.json has its own special tokens and settings, but the transformers library replaces some of them by those
// of these two files. tokenizer_json.h therefore adds the special tokens that they name, and throws ConfigError for
// settings that would lead to other token ids.

#include <map>

#include "tokenizer/added_tokens.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/word_cache.h"

namespace chimera {

/// A token that one of the files gives with its id.
struct ListedToken {
  std::string content;
  TokenId id = 0;
  std::string source;  ///< path of the file, for messages
};

/// Content of tokenizer_config.json and added_tokens.json.
struct TokenizerConfig {
  std::string source;                             ///< path of tokenizer_config.json
  std::string tokenizer_class;                    ///< empty: not given
  std::map<std::string, std::string> named = {};  ///< special tokens by field, such as "eos_token"
  std::vector<ListedToken> listed = {};           ///< tokens with ids, of both files
  std::vector<std::string> more_special = {};     ///< additional_special_tokens and extra_special_tokens
  std::map<std::string, bool> flags = {};         ///< boolean settings that the file gives, by field
  BertStep bert = {};                             ///< settings of BERT's normalizer
  std::string unsupported = {};  ///< a field that is not supported with vocab.json and vocab.txt; empty: none

  /// Returns the token of a field, such as "eos_token"; empty if the field is missing.
  [[nodiscard]] std::string token(const std::string& field) const;
};

/// Parses a tokenizer_config.json. Throws ConfigError, which names `source` and position, if the text is malformed.
[[nodiscard]] TokenizerConfig read_tokenizer_config(const std::string& text, const std::string& source);

/// Parses an added_tokens.json, and adds its tokens to `config`. Throws as read_tokenizer_config() does.
void add_listed_tokens(const std::string& text, const std::string& source, TokenizerConfig& config);

/// Returns the special tokens of a vocabulary. For each field, such as "eos_token", this is the token in `config`; if
/// `config` has none, the default in `usual`, unless the vocabulary lacks it. Throws ConfigError if `config` has an
/// unsupported field, a named token that is not in the vocabulary, or a listed token that is not in the result with the
/// same id. `source` is the file of the vocabulary, for messages.
[[nodiscard]] std::vector<AddedToken> special_tokens(const TokenizerConfig& config,
                                                     const std::map<std::string, std::string>& usual,
                                                     const TextMap<TokenId>& vocabulary, const std::string& source);

}  // namespace chimera
