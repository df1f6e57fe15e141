#pragma once
// What turns the words of a text into ids.

#include <memory>
#include <string_view>

#include "tokenizer/tokenizer.h"
#include "tokenizer/word_cache.h"

namespace chimera {

/// A vocabulary of words and parts of words. Does not change.
class WordModel {
 public:
  virtual ~WordModel() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  /// Appends the ids of a word, which is not empty. The cache is the caller's, always the same one for this model.
  virtual void encode(std::string_view word, TokenIds& ids, WordCache& cache) const = 0;
  /// Whether a word that ends before a blank may be encoded apart from what follows: what stands on the two sides of
  /// `place` in `word` is never one token.
  [[nodiscard]] virtual bool splits_at(std::string_view word, std::size_t place) const = 0;
};

}  // namespace chimera
