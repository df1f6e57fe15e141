#pragma once

// Byte-pair encoding (BPE): the WordModel (word_cache.h) of GPT-2, Llama 3 and others, which divides a word into
// tokens. A word begins as a sequence of characters or bytes. In each step, the adjacent pair whose merge comes first
// in the list of merges becomes one token, until no pair has a merge (Sennrich, Haddow and Birch, ACL 2016; equal to
// the Python package tokenizers). Short words search all pairs for each merge; long ones use a queue.

#include <memory>
#include <optional>
#include <utility>

#include "tokenizer/word_cache.h"

namespace chimera {

/// How a BPE model divides words.
struct BpeRules {
  bool byte_level = false;         ///< tokens have one letter per byte (byte_alphabet.h)
  bool byte_fallback = false;      ///< unknown characters become <0xNN> tokens if all bytes have one
  bool fuse_unknown = false;       ///< adjacent unknown characters become one token
  bool whole_words_first = false;  ///< a word that is a token is not split
  std::optional<TokenId> unknown;  ///< if absent, unknown characters are dropped
};

/// A BPE model as a tokenizer.json describes it.
struct BpeParts : BpeRules {
  TextMap<TokenId> vocabulary;                              ///< token -> id; ids are not negative
  std::vector<std::pair<std::string, std::string>> merges;  ///< pairs of tokens to merge; the first has rank 0
};

/// Returns a model that repeatedly merges the adjacent pair of lowest rank (place in the list of merges); of equal
/// pairs, the leftmost. Throws ConfigError if a merge has a token outside the vocabulary. `source` is the file, for
/// messages.
[[nodiscard]] std::unique_ptr<WordModel> make_bpe_model(const BpeParts& parts, const std::string& source);

}  // namespace chimera
