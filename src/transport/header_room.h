#pragma once
// Room for a header right before a tensor, so that a message need not be a copy of it.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace chimera {

/// Bytes that are left free before the first element: a multiple of the alignment of tensors, which thus stays.
inline constexpr std::int64_t kHeaderRoomBytes = 64;

/// From now on every CPU tensor that this process allocates through ATen has kHeaderRoomBytes before its first element.
/// Once is enough; later calls do nothing.
void leave_header_room();

/// The memory of `tensor` (contiguous) together with its header room, bytes [kHeaderRoomBytes + those of the tensor];
/// nothing where it has none, as it was allocated before leave_header_room() or does not begin where its memory does,
/// or where an earlier result for the same memory is still alive. It keeps the tensor's memory.
[[nodiscard]] std::optional<at::Tensor> with_header_room(const at::Tensor& tensor);

}  // namespace chimera
