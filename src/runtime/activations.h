#pragma once

// The tensors that forwards keep for their backwards. Usually a forward keeps its input and its output, with the
// autograd graph between them. Two instructions of the program keep less on the device:
//
//   Recompute  the forward keeps only its input; just before the backward it runs again and makes the graph
//   Offload    the tensors that the graph has saved (of a recomputed forward: its input) move to host memory after the
//              forward, and a Load moves them back before the backward
//
// Input and output of an offloaded stage that is not recomputed stay on the device. The forward of an offloaded stage
// runs in the scope of a SavedTensors object, which collects the saved tensors through autograd's saved-tensor hooks.
// HostCopies copies them on a stream of their own, so that other ops run meanwhile.

#include <ATen/core/Tensor.h>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/scoped_value.h"
#include "model/linear.h"
#include "runtime/recordings.h"
#include "runtime/worker_context.h"
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

/// What one forward keeps for its backward. If the stage is recomputed, only the input until the recomputation.
struct Activation {
  at::Tensor input;
  at::Tensor output;
  WeightGradients::Pointer weight_gradients;  // Weight gradients that the backward still has to compute
  std::unique_ptr<SavedTensors> saved;        // Tensors that autograd saves, if offloaded; else null
  SavedTensors::Pointer saved_input;          // The input of a recomputed forward, if offloaded; else null
  GraphSlot* recorded = nullptr;              // The device graphs that compute the op (recordings.h); null: none
};

/// The activations of a worker, used only by the worker's own thread. OpRunner puts and takes them; the executor calls
/// offload() and load(). An argument `op` names the activation of the op's stage, micro-batch and slice (part of its
/// tokens). A missing activation, or a second one for the same op, is an InternalError.
class Activations {
 public:
  explicit Activations(at::Device device) : copies_(std::make_shared<HostCopies>(device)) {}

  /// Reads which stages the program recomputes and which forwards it offloads. Call it before each run of a program.
  void begin(const std::vector<Instruction>& program);
  /// Uses the host memory of `other` for offloaded tensors, so that a warm-up (Executor::warm_up()) does not allocate
  /// it twice: it is page-locked, and slow to allocate.
  void share_host_memory(const Activations& other) { copies_ = other.copies_; }

  [[nodiscard]] bool is_recomputed(StageId stage) const { return recomputed_.contains(stage); }
  /// Returns a new object that collects the tensors that the graph of an offloaded forward saves; null for other
  /// forwards.
  [[nodiscard]] std::unique_ptr<SavedTensors> saved_tensors_of(const Op& forward) const;

  /// Keeps the activation of a forward.
  void put(const Op& forward, Activation activation);
  /// Removes and returns the activation. If it was offloaded, load() must have been called.
  [[nodiscard]] Activation take(const Op& op);

  /// Starts to move the activation to host memory.
  void offload(const Op& op);
  /// Starts to move the activation back to the device.
  void load(const Op& op);

  /// Drops all activations of an abandoned step.
  void drop() { activations_.clear(); }

 private:
  [[nodiscard]] Activation& find(const Op& op);

  std::unordered_set<StageId> recomputed_;
  std::unordered_set<OpKey> offloaded_;  // Forwards
  std::shared_ptr<HostCopies> copies_;
  std::unordered_map<OpKey, Activation> activations_;  // By forward
};

}  // namespace chimera
