#include "model/key_value_cache.h"

#include <ATen/ATen.h>

#include "core/invariant.h"

namespace chimera {

QueryKeyValue KeyValueCache::with_earlier(std::size_t block, const QueryKeyValue& next) {
  const std::int64_t tokens = next.key.size(1);
  require_invariant(length_ + tokens <= capacity_, "a cache of keys and values is full");
  if (block >= blocks_.size()) blocks_.resize(block + 1);
  const auto append = [&](at::Tensor& all, const at::Tensor& added) {
    if (!all.defined()) all = at::empty({added.size(0), capacity_, added.size(2)}, added.options());
    all.narrow(1, length_, tokens).copy_(added);
    return all.narrow(1, 0, length_ + tokens);
  };
  return {.query = next.query,
          .key = append(blocks_[block].keys, next.key),
          .value = append(blocks_[block].values, next.value)};
}

}  // namespace chimera
