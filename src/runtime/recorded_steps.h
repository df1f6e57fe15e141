#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>

#include "model/stage.h"
#include "schedule/program.h"
#include "transport/recorder.h"

namespace chimera {

/// Records the part of a program before the step's sums, and repeats it. The first steps run normally, so that lazy
/// initialization is complete. Each repetition copies its micro-batches to the recorded tensors; new sizes need a new
/// recording. Nothing else may differ between steps: no dropout.
class RecordedSteps {
 public:
  /// Steps that run normally.
  static constexpr int kStepsBefore = 2;

  using Load = std::function<MicroBatch(StageId, MicroBatchId)>;
  /// Scaled loss sums, [] each.
  using Losses = std::unordered_map<MicroBatchId, at::Tensor>;
  /// Runs the instructions with micro-batches from `load`; leaves losses in the executor.
  using Run = std::function<void(std::span<const Instruction>, const Load& load)>;

  /// Returns whether the next step runs normally, and counts it.
  [[nodiscard]] bool is_before();
  /// Runs the part, and records it first if there is no recording for these sizes. `record` calls `run`, which must
  /// leave nothing in flight. Sets `losses`.
  void run(std::span<const Instruction> part, const Load& load, const RecordWork& record, const Run& run,
           Losses& losses);
  [[nodiscard]] int recordings() const { return recordings_; }

 private:
  using Place = std::pair<StageId, MicroBatchId>;
  using Batches = std::map<Place, MicroBatch>;
  static Batches load_all(std::span<const Instruction> part, const Load& load);
  [[nodiscard]] bool has_sizes_of(Batches& batches);
  void take_over(Batches& batches);

  int steps_before_ = kStepsBefore;
  int recordings_ = 0;
  Batches batches_;  // inputs of the recorded forwards
  Losses losses_;    // their results
  std::unique_ptr<RecordedWork> work_;
};

}  // namespace chimera
