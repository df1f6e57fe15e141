#pragma once

// tokenizer_config.json and added_tokens.json: files beside a vocabulary that name its special tokens. For vocab.json
// and vocab.txt, they also have the settings of the tokenizer's pipeline. A tokenizer.json has its own tokens and
// settings, but the transformers library overrides some of them by these two files. tokenizer_json.h therefore adds the
// special tokens that they name, and throws ConfigError for settings that would lead to other token ids.

#include <map>
#include <string>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/word_cache.h"

namespace chimera {

struct ListedToken {
  std::string content;
  TokenId id = 0;
  std::string source;  ///< file
};

/// Content of tokenizer_config.json and added_tokens.json.
struct TokenizerConfig {
  std::string source;                             ///< path of tokenizer_config.json
  std::string tokenizer_class;                    ///< empty: not given
  std::map<std::string, std::string> named = {};  ///< by field, such as "eos_token"
  std::vector<ListedToken> listed = {};
  std::vector<std::string> more_special = {};  ///< additional_special_tokens, extra_special_tokens
  std::map<std::string, bool> flags = {};      ///< settings that the file gives, by field
  BertStep bert = {};
  std::string unsupported = {};  ///< field that is not supported with vocab.json and vocab.txt, or empty

  /// Returns an empty text if the field is missing.
  [[nodiscard]] std::string token(const std::string& field) const;
};

/// Throws ConfigError, naming `source` and position, if the text is malformed.
[[nodiscard]] TokenizerConfig read_tokenizer_config(const std::string& text, const std::string& source);

/// Adds an added_tokens.json. Throws as read_tokenizer_config() does.
void add_listed_tokens(const std::string& text, const std::string& source, TokenizerConfig& config);

/// Returns the special tokens of a vocabulary. Each field, such as "eos_token", has the token in `config` or, without
/// one, the token in `usual`; tokens of `usual` that the vocabulary lacks are omitted. Throws ConfigError if `config`
/// has an unsupported field, a token that is not in the vocabulary, or a token with another id.
[[nodiscard]] std::vector<AddedToken> special_tokens(const TokenizerConfig& config,
                                                     const std::map<std::string, std::string>& usual,
                                                     const TextMap<TokenId>& vocabulary, const std::string& source);

}  // namespace chimera
