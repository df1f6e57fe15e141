#pragma once
// Room for a header right before a tensor, so that a message need not be a copy of it.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace chimera {

/// What Headroom leaves before the first element. A multiple of the alignment of tensors, which therefore stays.
inline constexpr std::int64_t kHeadroomBytes = 64;

/// From now on every CPU tensor that this process allocates through ATen has kHeadroomBytes before its first element.
/// Once is enough; later calls do nothing.
void leave_headroom();

/// The memory of `tensor` (contiguous) together with its headroom, bytes [kHeadroomBytes + those of the tensor];
/// nothing where it has none, as it was allocated before leave_headroom() or does not begin where its memory does, or
/// where an earlier result for the same memory is still alive. It keeps the tensor's memory.
[[nodiscard]] std::optional<at::Tensor> with_headroom(const at::Tensor& tensor);

}  // namespace chimera
