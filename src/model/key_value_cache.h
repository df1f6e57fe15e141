#pragma once

// The keys and values of earlier tokens, for attention. A micro-batch may run in slices of its tokens, one forward
// after the other (docs/slices.md). Each slice attends to all earlier tokens, so their keys and values are carried from
// slice to slice on every stage; backward carries the gradients of the keys and values in the other direction:
//
//   forward:   slice 0 -> keys, values -> slice 1 -> keys, values -> slice 2
//   backward:  slice 0 <- gradients    <- slice 1 <- gradients    <- slice 2
//
// Text generation uses the forward half: the prompt is the first slice, and each new token is another, so that a token
// passes through the model once.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "model/layers.h"

namespace chimera {

/// Keys (after rotary positions) and values of one micro-batch in the blocks of one stage, and their gradients. The
/// executor makes one for each micro-batch and stage, and passes it to the stage in MicroBatch::key_value_cache. A
/// forward may run again (recomputation); it then reads the keys and values that it stored the first time.
///
/// Letters in shapes: b sequences, d width of an attention head; `heads` is the number of key and value heads.
class KeyValueCache {
 public:
  /// `sequence` is the number of tokens of all slices. The first slice allocates memory for all of them.
  explicit KeyValueCache(std::int64_t sequence) : sequence_(sequence) {}

  [[nodiscard]] std::int64_t sequence() const { return sequence_; }

  struct CacheFunction;  // of autograd

 private:
  struct CachedTensor {
    at::Tensor all;  // [b, sequence, heads * d]
    std::int64_t filled = 0;
    // [b, n, heads * d], of the n tokens before the last slice that ran backward, from all slices so far; in at least
    // float32
    at::Tensor gradients;
  };
  struct Block {
    CachedTensor keys;
    CachedTensor values;
  };
  [[nodiscard]] at::Tensor append(CachedTensor& cached, const at::Tensor& own, std::int64_t first) const;
  [[nodiscard]] static at::Tensor take_own(CachedTensor& cached, const at::Tensor& gradient, std::int64_t first);

  std::int64_t sequence_;
  std::vector<Block> blocks_;
};

/// Completes the attention inputs of a slice in block `block` of the stage. `own` has the queries, keys and values of
/// the slice's l tokens, and `first` is the index of its first token in the sequence. Returns the queries of `own`, and
/// the keys and values of all tokens from the start of the sequence to the slice's last, [b, first + l, heads * d]. In
/// backward, the gradients of earlier slices' keys and values are added up in `cached`. The slice's own keys and values
/// get the gradients that later slices have added there.
[[nodiscard]] QueryKeyValue append_to_cache(const std::shared_ptr<KeyValueCache>& cached, std::size_t block,
                                            std::int64_t first, const QueryKeyValue& own);

}  // namespace chimera
