#pragma once

// Recordings of device work as device graphs, such as CUDA graphs. Launching a kernel costs the host microseconds,
// which small layers cannot hide. Work that launches the same kernels on the same memory again and again is recorded as
// a graph, which is then launched as a whole. A graph always uses the same memory, so micro-batches are copied to the
// tensors that it reads.
//
// RecordedSteps (--cuda-graphs) records the part of a program before the all-reduces that end the step. RecordedOps
// (--op-graphs) records single ops. A stage has a *slot* (GraphSlot), with tensors and graphs of its own, for each
// micro-batch that it can have in flight at once. Messages, sums and updates are not recorded. Unlike the graph of a
// whole step, these graphs contain no NCCL, so ranks need not record at the same time, and their number does not grow
// with the number of micro-batches.
//
// Memory of RecordedOps: the graphs of one kind of op share a memory pool. All forwards are recorded first, then all
// backwards (or input gradients), then all weight gradients. The results of a forward stay alive until its backward, so
// no other forward gets the same memory. When a backward frees them, all forwards are already recorded, so no other op
// gets this memory either. The same holds for the other kinds.

#include <ATen/core/Tensor.h>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "model/linear.h"
#include "model/stage.h"
#include "runtime/step_hooks.h"
#include "runtime/worker_context.h"
#include "schedule/program.h"
#include "transport/device_graph.h"

namespace chimera {

/// Records the part of a program before the step's sums, and repeats it. The first steps run normally, so that lazy
/// initialization is complete. Each repetition copies its micro-batches to the recorded tensors; new sizes need a new
/// recording. Nothing else may differ between steps: no dropout.
///
/// All ranks must record in the same steps: NCCL requires that all members of a communicator capture an operation, and
/// that they launch graphs of the same capture (NCCL User Guide, Using NCCL with CUDA Graphs). Therefore each rank
/// loads the next micro-batches before the all-reduces that end the step (load_next()). These also add up how many
/// ranks need a new recording; if any does, all record.
class RecordedSteps {
 public:
  /// Number of steps that run normally before the recording.
  static constexpr int kStepsBefore = 2;

  /// Function that runs the instructions with micro-batches from `load`; losses remain in the executor.
  using Run = std::function<void(std::span<const Instruction>, const LoadMicroBatch& load)>;

  /// Counts the next step, and returns whether it is one of the first kStepsBefore, which run normally.
  [[nodiscard]] bool is_before();
  /// Runs the instructions `part`: repeats their recording, or first makes one with `record` if there is none. `run`
  /// executes instructions normally, and is called only while recording. It must leave no send, receive or sum in
  /// flight. The micro-batches are those of load_next() if it was called since the last run(), else they come from
  /// `load`. Sets `losses`. Throws std::logic_error if the sizes of micro-batches differ from the recorded ones.
  void run(std::span<const Instruction> part, const LoadMicroBatch& load, const CaptureGraph& record, const Run& run,
           StepLosses& losses);
  /// Loads the micro-batches of the next run().
  void load_next(std::span<const Instruction> part, const LoadMicroBatch& load);
  /// Returns whether the sizes of the micro-batches of load_next() differ from the recorded ones; false without
  /// load_next().
  [[nodiscard]] bool needs_recording() { return next_ && !has_sizes_of(*next_); }
  /// Drops the recording, so that the next run() makes a new one. All ranks call it if any rank needs_recording().
  void record_again() { work_.reset(); }

 private:
  using Place = std::pair<StageId, MicroBatchId>;
  using Batches = std::map<Place, MicroBatch>;
  static Batches load_all(std::span<const Instruction> part, const LoadMicroBatch& load);
  [[nodiscard]] bool has_sizes_of(Batches& batches);

  int steps_before_ = kStepsBefore;
  Batches batches_;              // inputs of the recorded forwards
  std::optional<Batches> next_;  // inputs of the next step
  StepLosses losses_;            // results of the recorded forwards
  std::unique_ptr<DeviceGraph> work_;
};

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
