#pragma once
// What attention remembers of the tokens before, so that a model which continues a text computes each token once.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/layers.h"

namespace chimera {

/// Keys and values of the tokens that the blocks of one stage have seen, already turned to their positions. For
/// forwards without a graph: it is written to.
class KeyValueCache {
 public:
  /// Has room for `capacity` tokens of each sequence, and takes memory for as many when the first of them come.
  explicit KeyValueCache(std::int64_t capacity) : capacity_(capacity) {}

  /// Tokens that all blocks have seen, which is the position of the next one.
  [[nodiscard]] std::int64_t length() const { return length_; }
  /// Adds the keys and values of the next tokens in a block, [b, L, heads * d] each. Returns the queries with the keys
  /// and values of all tokens so far, [b, length() + L, heads * d].
  [[nodiscard]] QueryKeyValue with_earlier(std::size_t block, const QueryKeyValue& next);
  /// Says that all blocks have seen the next `tokens`.
  void advance(std::int64_t tokens) { length_ += tokens; }

 private:
  struct Remembered {
    at::Tensor keys;    // [b, capacity, heads * d]
    at::Tensor values;  // likewise
  };

  std::int64_t capacity_;
  std::int64_t length_ = 0;
  std::vector<Remembered> blocks_;
};

}  // namespace chimera
