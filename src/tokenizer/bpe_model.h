#pragma once

// Byte-pair encoding: a word begins as a sequence of characters or bytes, and the pair with the lowest rank is merged
// until no pair has a merge (Sennrich, Haddow and Birch, ACL 2016; order of merges as in tokenizers). Short words
// search all pairs for each merge; long ones use a queue.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/word_cache.h"

namespace chimera {

struct BpeParts {
  TextMap<TokenId> vocabulary;  ///< ids are not negative
  std::vector<std::pair<std::string, std::string>> merges;
  bool byte_level = false;         ///< tokens have one letter per byte (byte_alphabet.h)
  bool byte_fallback = false;      ///< unknown characters become <0xNN> tokens if all bytes have one
  bool fuse_unknown = false;       ///< adjacent unknown characters become one token
  bool whole_words_first = false;  ///< a word that is a token is not split
  std::optional<TokenId> unknown;  ///< if absent, unknown characters are dropped
};

/// Returns a model that repeatedly merges the adjacent pair of lowest rank, the leftmost of equals. Throws ConfigError,
/// naming `source`, if a merge has a token outside the vocabulary.
[[nodiscard]] std::unique_ptr<WordModel> make_bpe_model(const BpeParts& parts, const std::string& source);

}  // namespace chimera
