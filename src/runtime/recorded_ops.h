#pragma once

// Device graphs of single ops (--op-graphs). Launching a kernel costs the host microseconds, which small layers cannot
// hide. An op launches the same kernels for every micro-batch, so it is recorded once per place of a micro-batch in
// flight, and then launched as a whole on that place's tensors. Messages, sums and updates stay outside. Unlike the
// graph of a whole step (recorded_steps.h), these graphs contain no NCCL, so ranks need not agree; their number does
// not grow with micro-batches; and every instruction is still noted.
//
// Memory. Graphs of one kind share a pool: forwards; backwards or input gradients; weight gradients. Each kind is
// recorded after the one before. What a forward leaves is alive while the other forwards are recorded, so none of them
// uses its memory; when a backward frees it, nothing allocates in that pool any more. The next kind is alike.

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

/// A micro-batch in flight on a stage: tensors, always at the same addresses, and the graphs of its ops.
struct GraphSlot {
  at::Tensor input;  ///< undefined on the first stage
  MicroBatch batch;
  at::Tensor output;
  at::Tensor output_gradient;  ///< undefined on the last stage
  WeightGradients::Pointer weight_gradients = c10::make_intrusive<WeightGradients>();
  std::unique_ptr<DeviceGraph> forward;
  std::unique_ptr<DeviceGraph> backward;  ///< or input gradient
  std::unique_ptr<DeviceGraph> weights;   ///< null if backwards are whole
  bool is_used = false;                   ///< between its forward and its last backward op
};

/// Borrows the context.
class RecordedOps {
 public:
  explicit RecordedOps(const WorkerContext& worker) : worker_(worker) {}

  /// Records the ops of a synchronous training program, for micro-batches like those of `load`, and adds to gradients.
  /// Leaves out recomputed stages. Waits for the device, so call it when no receive is pending.
  void record(const std::vector<Instruction>& program, const LoadMicroBatch& load, const CaptureGraph& capture);

  /// Launches a forward in a free place. Returns null, without an effect, if there is none for such tensors: the op
  /// must then run as usual.
  [[nodiscard]] GraphSlot* forward(const Op& op, const at::Tensor& input, MicroBatch batch);
  /// Launches the backward or input gradient. Returns the gradient of the input in memory of its own, because it may be
  /// sent when the place is used again; undefined on the first stage. Frees the place after a whole backward.
  [[nodiscard]] static at::Tensor backward(GraphSlot& place, const at::Tensor& output_gradient);
  /// Launches the weight gradient, and frees the place.
  static void add_weight_gradients(GraphSlot& place);

  /// Frees all places of an abandoned step.
  void drop();

 private:
  using Places = std::vector<std::unique_ptr<GraphSlot>>;
  void make_places(const std::vector<Instruction>& program, const LoadMicroBatch& load);

  const WorkerContext& worker_;
  std::map<StageId, Places> places_;  // as many as micro-batches are in flight
};

}  // namespace chimera
