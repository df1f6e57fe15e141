#pragma once
// Numbers of the host on their way to a device.

#include <ATen/core/Tensor.h>

#include <span>

namespace chimera {

/// A copy of the numbers on `device`, flat, in float64. On a device that works in streams nobody waits for it: it goes
/// through pinned memory, in the calling thread's current stream.
[[nodiscard]] at::Tensor on_device(std::span<const double> numbers, at::Device device);

}  // namespace chimera
