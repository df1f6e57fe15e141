#pragma once

// Records a step's work on the GPU once and repeats it (--cuda-graphs). Launching a kernel costs the host microseconds,
// which small models cannot hide. The part of a program before the all-reduces that end the step launches the same
// kernels on the same memory in each step. It is recorded as a device graph and then launched as a whole; only the
// micro-batches are copied to the recorded tensors before.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "model/stage.h"
#include "runtime/step_hooks.h"
#include "schedule/program.h"
#include "transport/device_graph.h"

namespace chimera {

/// Returns whether both micro-batches have the same tensors with the same sizes.
[[nodiscard]] bool have_equal_sizes(MicroBatch& left, MicroBatch& right);
/// Copies the tensors of `from` into the memory of `to`, a micro-batch of equal sizes: a graph reads its inputs at
/// fixed addresses.
void copy_tensors(MicroBatch& to, MicroBatch& from);

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

}  // namespace chimera
