#include "model/shared_tensor.h"

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>

#include <algorithm>
#include <memory>

#include "core/shared_memory.h"

namespace chimera {
namespace {

void report(const SharedMemory& memory, std::int64_t bytes) {
  if (c10::memoryProfilingEnabled()) {
    c10::reportMemoryUsageToProfiler(memory.data(), bytes, memory.size(), memory.size(), at::kCPU);
  }
}

}  // namespace

at::Tensor shared_zeros(std::int64_t count, const at::TensorOptions& options) {
  if (!options.device().is_cpu()) return at::zeros({count}, options);
  const auto bytes = count * static_cast<std::int64_t>(options.dtype().itemsize());
  auto memory = std::make_shared<SharedMemory>(static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1)));
  report(*memory, bytes);
  void* data = memory->data();
  const auto release = [memory = std::move(memory), bytes](void* /*data*/) { report(*memory, -bytes); };
  return at::from_blob(data, {count}, release, options);
}

}  // namespace chimera
