#pragma once

// Device graphs (such as CUDA graphs) of single ops (--op-graphs). Launching a kernel costs the host microseconds,
// which small layers cannot hide. An op launches the same kernels for every micro-batch, so they are recorded as a
// graph, which is then launched as a whole. A graph always uses the same memory. Therefore a stage has a *slot*
// (GraphSlot), with tensors and graphs of its own, for each micro-batch that it can have in flight at once. Messages,
// sums and updates are not recorded. Unlike the graph of a whole step (recorded_steps.h), these graphs contain no NCCL,
// so ranks need not record at the same time, and their number does not grow with the number of micro-batches.
//
// Memory: the graphs of one kind of op share a memory pool. All forwards are recorded first, then all backwards (or
// input gradients), then all weight gradients. The results of a forward stay alive until its backward, so no other
// forward gets the same memory. When a backward frees them, all forwards are already recorded, so no other op gets this
// memory either. The same holds for the other kinds.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "model/linear.h"
#include "model/stage.h"
#include "runtime/step_hooks.h"
#include "runtime/worker_context.h"
#include "transport/device_graph.h"

namespace chimera {

/// Memory for a micro-batch in flight on a stage: tensors, always at the same addresses, and the graphs of its ops.
struct GraphSlot {
  at::Tensor input;  ///< undefined on the first stage
  MicroBatch batch;  ///< tensors that the graphs read; forward() copies each micro-batch to them
  at::Tensor output;
  at::Tensor output_gradient;  ///< undefined on the last stage
  WeightGradients::Pointer weight_gradients = c10::make_intrusive<WeightGradients>();
  GraphMasks masks;  ///< random generators of its dropout (model/dropout.h)
  std::unique_ptr<DeviceGraph> forward;
  std::unique_ptr<DeviceGraph> backward;  ///< whole backward, or input gradient
  std::unique_ptr<DeviceGraph> weights;   ///< weight gradient; null if backwards are whole
  bool is_used = false;                   ///< between its forward and its last backward op
};

/// The slots of all stages of a worker. Borrows the context.
class RecordedOps {
 public:
  explicit RecordedOps(const WorkerContext& worker) : worker_(worker) {}

  /// Records the ops of a synchronous training program, for micro-batches with the sizes and settings of the
  /// micro-batches of `load`. Recording also runs the ops once, so it changes the gradients. Leaves out recomputed
  /// stages. Waits for the device, so call it when no receive is pending.
  void record(const std::vector<Instruction>& program, const LoadMicroBatch& load, const CaptureGraph& capture);

  /// Launches a forward in a free slot, and returns the slot. Returns null, without an effect, if no free slot fits
  /// these tensors: the op must then run as usual.
  [[nodiscard]] GraphSlot* forward(const Op& op, const at::Tensor& input, MicroBatch batch);
  /// Launches the backward or input gradient. Returns the gradient of the input in memory of its own, because it may
  /// still be sent when the slot is used again; undefined on the first stage. Frees the slot after a whole backward.
  [[nodiscard]] static at::Tensor backward(GraphSlot& slot, const at::Tensor& output_gradient);
  /// Launches the weight gradient, and frees the slot.
  static void add_weight_gradients(GraphSlot& slot);

  /// Frees all slots of an abandoned step.
  void drop();

 private:
  using Slots = std::vector<std::unique_ptr<GraphSlot>>;
  void make_slots(const std::vector<Instruction>& program, const LoadMicroBatch& load);
  void make_generators();

  const WorkerContext& worker_;
  std::map<StageId, Slots> slots_;  // as many as micro-batches are in flight at once
};

}  // namespace chimera
