#pragma once

// A micro-batch may run in slices of its tokens, one forward after the other (docs/slices.md). Each slice attends to
// all earlier tokens, so their keys and values are carried from slice to slice on every stage; backward carries the
// gradients of the keys and values in the other direction:
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

/// Keys (after rotary positions) and values of one micro-batch in the blocks of one stage, and their gradients. A
/// forward may run again (recomputation); it then reads the keys and values of the first time.
class CarriedKeyValues {
 public:
  /// `sequence` is the number of tokens of all slices. The first slice allocates memory for all of them.
  explicit CarriedKeyValues(std::int64_t sequence) : sequence_(sequence) {}

  [[nodiscard]] std::int64_t sequence() const { return sequence_; }

  struct CarryFunction;  // of autograd

 private:
  struct Carried {
    at::Tensor all;  // [b, sequence, heads * d]
    std::int64_t filled = 0;
    // [b, n, heads * d], of the n tokens before the last slice that ran backward, from all slices so far; in at least
    // float32
    at::Tensor gradients;
  };
  struct Block {
    Carried keys;
    Carried values;
  };
  [[nodiscard]] at::Tensor append(Carried& carried, const at::Tensor& own, std::int64_t first) const;
  [[nodiscard]] static at::Tensor take_own(Carried& carried, const at::Tensor& gradient, std::int64_t first);

  std::int64_t sequence_;
  std::vector<Block> blocks_;
};

/// Returns `own`, the projections of a slice in block `block`, with the keys and values of all tokens up to the slice's
/// last, [b, first + l, heads * d]; `first` is the slice's first token. Backward keeps the gradients of earlier slices'
/// keys and values in `carried`, summed in the order of the backwards. It adds the sum of later slices to the slice's
/// own gradients.
[[nodiscard]] QueryKeyValue with_earlier_slices(const std::shared_ptr<CarriedKeyValues>& carried, std::size_t block,
                                                std::int64_t first, const QueryKeyValue& own);

}  // namespace chimera
