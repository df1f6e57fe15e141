#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "transport/stream.h"

namespace chimera {

/// Copies between a worker's device and host memory, page-locked for a GPU, one after the other on a stream of their
/// own. On the CPU, copies are to other CPU memory and at once.
class HostCopies {
 public:
  explicit HostCopies(at::Device device) : device_(device), stream_(device) {}

  /// Starts to copy tensors [bytes] to host memory; `end` is the end of the copy. The device's memory may be freed at
  /// once: it is not reused before that. Makes the current stream wait for the previous call's copy, so that the memory
  /// of at most one such copy is still in use.
  [[nodiscard]] std::vector<at::Tensor> to_host(const std::vector<at::Tensor>& tensors, StreamMark& end);
  /// Starts to copy results of to_host() back, and returns the tensors; `end` is the end of the copy.
  [[nodiscard]] std::vector<at::Tensor> to_device(std::vector<at::Tensor> tensors, StreamMark& end);

 private:
  [[nodiscard]] at::Tensor take(std::int64_t bytes);

  at::Device device_;
  RankStream stream_;
  StreamMark last_;  // end of the previous copy to host memory
  /// Host memory to use again, by bytes. To allocate page-locked memory can wait for the whole GPU.
  std::map<std::int64_t, std::vector<at::Tensor>> free_;
};

/// Tensor that a graph has saved for backward; undefined while it is in host memory.
struct SavedTensor {
  at::Tensor value;
};

/// The tensors that a forward's graph saves for its backward. The graph then refers to them through saved-tensor hooks,
/// so that they can be moved. Backward frees them in its own order.
class SavedTensors {
 public:
  using Pointer = std::shared_ptr<SavedTensor>;

  /// Adds what graphs save that this thread makes; null: nothing changes. Throws Error if another engine than
  /// LibTorch's own runs backwards, such as Python's.
  class Scope {
   public:
    explicit Scope(SavedTensors* saved);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    SavedTensors* before_;
  };

  Pointer add(const at::Tensor& tensor);
  /// Starts to move to host memory all tensors that nobody else holds. Leaves that need gradients stay.
  void offload(HostCopies& copies);
  /// Starts to move them back. Makes the current stream wait for the end of offload().
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
  std::vector<std::vector<View>> views_;  // of each in in_host_
  StreamMark offloaded_;
  StreamMark loaded_;
};

}  // namespace chimera
