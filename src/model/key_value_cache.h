#pragma once

// Text generation feeds one new token at a time, but attention needs the keys and values of all tokens before it. Each
// stage keeps them here, so that a token passes through the model once.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/layers.h"

namespace chimera {

/// Keys (after rotary positions) and values of earlier tokens in the blocks of one stage. Only for forwards without a
/// graph, because it is written to.
class KeyValueCache {
 public:
  /// `capacity` is the maximum number of tokens in a sequence. The first token allocates memory for all of them.
  explicit KeyValueCache(std::int64_t capacity) : capacity_(capacity) {}

  [[nodiscard]] std::int64_t length() const { return length_; }
  /// Appends keys and values of the next tokens of a block, [b, L, heads * d] each. Returns them with all earlier keys
  /// and values, [b, length() + L, heads * d].
  [[nodiscard]] QueryKeyValue with_earlier(std::size_t block, const QueryKeyValue& next);
  /// Ends a forward: all blocks have processed the next `tokens`.
  void advance(std::int64_t tokens) { length_ += tokens; }

 private:
  struct Remembered {
    at::Tensor keys;    // [b, capacity, heads * d]
    at::Tensor values;  // [b, capacity, heads * d]
  };

  std::int64_t capacity_;
  std::int64_t length_ = 0;
  std::vector<Remembered> blocks_;
};

}  // namespace chimera
