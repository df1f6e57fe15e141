#pragma once

// The tensors that forwards keep for their backwards. Usually a forward keeps its input and its output, with the
// autograd graph between them. Two instructions of the program keep less on the device:
//
//   Recompute  the forward keeps only its input; just before the backward it runs again and makes the graph
//   Offload    the tensors that the graph has saved (of a recomputed forward: its input) move to host memory after the
//              forward, and a Load moves them back before the backward
//
// Input and output of an offloaded stage that is not recomputed stay on the device.

#include <ATen/core/Tensor.h>

#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "model/linear.h"
#include "runtime/recordings.h"
#include "runtime/saved_tensors.h"
#include "runtime/worker_context.h"

namespace chimera {

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
