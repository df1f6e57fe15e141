#pragma once

// Moves the tensors that autograd saves for a backward to host memory and back (--offload). A forward runs in the scope
// of a SavedTensors object, which collects the saved tensors through autograd's saved-tensor hooks. offload() starts
// their copies to the host on a stream of their own, so that later ops run meanwhile. load() starts the copies back
// before the backward.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "core/scoped_value.h"
#include "transport/stream.h"

namespace chimera {

/// Makes copies between a device and host memory on a stream of their own; on the CPU, at once to other CPU memory. For
/// one thread at a time.
class HostCopies {
 public:
  explicit HostCopies(at::Device device) : device_(device), stream_(device) {}

  /// Starts to copy tensors (flat, of bytes) to host memory, and sets `end` to the end of the copy. The caller may drop
  /// the tensors at once. Makes the current stream wait for the copy of the previous call, so that its device memory is
  /// free.
  [[nodiscard]] std::vector<at::Tensor> to_host(const std::vector<at::Tensor>& tensors, StreamMark& end);
  /// Starts to copy results of to_host() back to the device, and sets `end` to the end of the copy.
  [[nodiscard]] std::vector<at::Tensor> to_device(std::vector<at::Tensor> tensors, StreamMark& end);

 private:
  [[nodiscard]] at::Tensor take(std::int64_t bytes);
  [[nodiscard]] StreamMark copy(const std::vector<at::Tensor>& from, const std::vector<at::Tensor>& to,
                                const std::vector<at::Tensor>& on_device);

  at::Device device_;
  SideStream stream_;
  StreamMark last_;  // end of the previous copy to host memory
  /// Unused host memory by size in bytes; kept, because an allocation of page-locked memory can wait for the whole GPU.
  std::map<std::int64_t, std::vector<at::Tensor>> free_;
};

/// Tensors that a forward's graph saves for backward. The graph reads them through saved-tensor hooks, so they can
/// move.
class SavedTensors {
 public:
  /// A tensor that a graph has saved for backward; undefined while it is in host memory.
  using Pointer = std::shared_ptr<at::Tensor>;

  /// Scope in which `saved` collects the tensors that autograd saves on this thread; null: no effect. Throws Error if
  /// Python's autograd engine is in use.
  struct Scope : ScopedValue<SavedTensors*> {
    explicit Scope(SavedTensors* saved);
  };

  /// Adds a tensor; the graph keeps the result in its place.
  Pointer add(const at::Tensor& tensor);
  /// Starts to move to host memory all tensors that nothing else refers to. Leaves that need gradients stay.
  void offload(HostCopies& copies);
  /// Starts to move these tensors back. Makes the current stream wait for the end of offload().
  void load(HostCopies& copies);
  /// Makes the current stream wait for load().
  void await() const { loaded_.await(); }

 private:
  struct View {
    Pointer tensor;
    at::ScalarType type;
    std::vector<std::int64_t> sizes;
    std::vector<std::int64_t> strides;
    std::int64_t offset;
  };

  std::vector<Pointer> tensors_;
  std::vector<at::Tensor> in_host_;
  std::vector<std::vector<View>> views_;  // [in_host_]
  StreamMark offloaded_;
  StreamMark loaded_;
};

}  // namespace chimera
