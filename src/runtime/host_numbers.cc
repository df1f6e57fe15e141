#include "runtime/host_numbers.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace chimera {

at::Tensor on_device(std::span<const double> numbers, at::Device device) {
  const auto options = at::TensorOptions().dtype(at::kDouble).pinned_memory(!device.is_cpu());
  const at::Tensor host = at::empty({static_cast<std::int64_t>(numbers.size())}, options);
  std::ranges::copy(numbers, host.data_ptr<double>());
  return host.to(device, /*non_blocking=*/true);
}

}  // namespace chimera
