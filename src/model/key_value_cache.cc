#include "model/key_value_cache.h"

#include <ATen/ATen.h>

#include <utility>

#include "core/invariant.h"
#include "model/autograd.h"

namespace chimera {

/// The result ends with the slice. It does not share the version counter of `all`, which later slices write to.
at::Tensor KeyValueCache::append(CachedTensor& cached, const at::Tensor& own, std::int64_t first) const {
  const std::int64_t end = first + own.size(1);
  require_invariant(end <= sequence_, "a slice ends behind its sequence");
  // Allocated once for the whole sequence: a tensor that grows with each slice would be copied each time.
  if (!cached.all.defined()) cached.all = at::empty({own.size(0), sequence_, own.size(2)}, own.options());
  // A recomputed forward finds its tokens already there and must not write them again: later slices use them.
  if (cached.filled < end) {
    require_invariant(cached.filled == first, "slices run forward out of order");
    cached.all.narrow(1, first, end - first).copy_(own);
    cached.filled = end;
  }
  // variable_data() shares memory but not autograd's version counter. With it, the backward of an earlier slice would
  // be refused, because a later slice has written to the same storage (to other tokens).
  return cached.all.narrow(1, 0, end).variable_data();
}

/// Adds the earlier tokens' part of `gradient` to their gradients.
at::Tensor KeyValueCache::take_own(CachedTensor& cached, const at::Tensor& gradient, std::int64_t first) {
  const at::ScalarType type = gradient.scalar_type();
  const std::int64_t length = gradient.size(1) - first;
  // Slices run backward from the last, so the gradients of later slices are complete here.
  at::Tensor sum = std::exchange(cached.gradients, {});
  // `gradient` covers the tokens 0 .. first + length - 1. `sum` covers the same tokens, from the slices behind this
  // one. The sum of both in the last `length` tokens is the gradient of the slice's own keys; the rest waits for
  // earlier slices.
  const at::Tensor own = gradient.narrow(1, first, length);
  const at::Tensor result = sum.defined() ? (sum.narrow(1, first, length) + own).to(type) : own.clone();
  if (first == 0) return result;
  const at::Tensor earlier = gradient.narrow(1, 0, first);
  // In at least float32, because in bfloat16 the sum over many slices would lose small terms.
  cached.gradients = sum.defined()
                         ? sum.narrow(1, 0, first).add_(earlier)
                         : earlier.to(at::promote_types(type, at::kFloat), /*non_blocking=*/false, /*copy=*/true);
  return result;
}

struct KeyValueCache::CacheFunction : torch::autograd::Function<KeyValueCache::CacheFunction> {
  struct Place {
    std::shared_ptr<KeyValueCache> cached;
    std::size_t block = 0;
    std::int64_t first = 0;
  };

  static variable_list forward(AutogradContext* context, const at::Tensor& key, const at::Tensor& value,
                               const std::shared_ptr<KeyValueCache>& cached, std::size_t block, std::int64_t first) {
    // Blocks of the stage appear in order at the first slice.
    auto& blocks = cached->blocks_;
    if (block >= blocks.size()) blocks.resize(block + 1);
    hold(context, "place", Place{cached, block, first});
    return {cached->append(blocks[block].keys, key, first), cached->append(blocks[block].values, value, first)};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto& [cached, number, first] = held<Place>(context, "place");
    auto& block = cached->blocks_[number];
    return {take_own(block.keys, gradients[0], first), take_own(block.values, gradients[1], first), at::Tensor(),
            at::Tensor(), at::Tensor()};
  }
};

QueryKeyValue append_to_cache(const std::shared_ptr<KeyValueCache>& cached, std::size_t block, std::int64_t first,
                              const QueryKeyValue& own) {
  const auto all = KeyValueCache::CacheFunction::apply(own.key, own.value, cached, block, first);
  return {own.query.contiguous(), all[0], all[1]};  // not as part of one projection, which backward would keep whole
}

}  // namespace chimera
