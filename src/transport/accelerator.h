#pragma once

// The interface of the GPU library, libchimera_cuda.so (src/cuda). The program itself is built without libtorch_cuda,
// which takes seconds to load and needs a driver; it loads the library only for `--device cuda`. The interface has only
// what torch's device-independent calls cannot do: properties of GPUs, recording of CUDA graphs, and connections of
// ranks over NCCL.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/device_graph.h"
#include "transport/pairs/pair_transport.h"
#include "transport/transport.h"

namespace chimera {

/// Properties of a GPU.
struct GpuTraits {
  std::string name = {};
  std::string uuid = {};  ///< unique across hosts
  int multiprocessors = 0;
  bool has_bfloat16 = false;  ///< in hardware
  bool has_tf32 = false;      ///< computes float32 products in TensorFloat32
  std::int64_t memory_bytes = 0;
  std::string pci = {};  ///< address such as "0000:1b:00.0"
};

/// The functions of the GPU library. `gpu` is an index among the GPUs visible to this process.
class Accelerator {
 public:
  virtual ~Accelerator() = default;
  [[nodiscard]] virtual at::DeviceType type() const { return at::kCUDA; }
  [[nodiscard]] virtual int num_devices() const = 0;
  [[nodiscard]] virtual GpuTraits traits(int gpu) const = 0;
  /// Returns this process's peak bytes of tensors since its start.
  [[nodiscard]] virtual std::int64_t peak_bytes(int gpu) const = 0;
  /// Returns the GPU's bytes in use, including free blocks of torch's allocator and other processes (cudaMemGetInfo).
  [[nodiscard]] virtual std::int64_t used_bytes(int gpu) const = 0;
  /// Returns how often, since the start, this process's allocations found no memory until the allocator had freed its
  /// cache.
  [[nodiscard]] virtual std::int64_t allocation_retries(int gpu) const = 0;
  /// Returns why there are no GPUs, in one line; "" if there are.
  [[nodiscard]] virtual std::string problem() const = 0;
  /// Gives free blocks of torch's allocator back to the GPU. Waits for the GPU.
  virtual void release_cache() const = 0;
  /// Ends the range that this thread shows in NVIDIA's profilers (NVTX), and begins one, unless `name` is empty.
  virtual void name_range(const std::string& name) const = 0;
  /// Implements CaptureGraph (device_graph.h). Throws Error with the first line of a CUDA error.
  [[nodiscard]] virtual std::unique_ptr<DeviceGraph> record(const std::function<void()>& work,
                                                            const DeviceGraph* shared,
                                                            const std::vector<at::Generator>& generators) const = 0;
  /// Joins the other ranks over NCCL, and connects all communicators. If an exception ends the transport, pending
  /// operations are aborted. Throws TransportError. If fingerprints differ or ranks share a GPU, throws ConfigError on
  /// the wrong ranks and PeerLostError on the others (compare_ranks()).
  [[nodiscard]] virtual std::unique_ptr<Transport> connect(const NcclOptions& options) const = 0;
};

/// C function that returns the library's Accelerator. Increment the number when this interface or Transport changes.
inline constexpr const char* kAcceleratorEntry = "chimera_accelerator_14";
using AcceleratorEntry = const Accelerator* (*)();

}  // namespace chimera
