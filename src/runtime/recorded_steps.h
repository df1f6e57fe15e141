#pragma once
// Steps of a worker whose device is given the same work in each: recorded once, then repeated.

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

/// Runs the part of a program that comes before the step's sums. The first steps run as they are, so that everything
/// that is made once is there; then one is recorded, with the micro-batches in tensors that stay; from then on a step
/// copies its own there and repeats what was recorded. Micro-batches of other sizes than before are recorded anew. All
/// that differs from step to step has to be in their tensors: no dropout.
class RecordedSteps {
 public:
  /// That run as they are.
  static constexpr int kStepsBefore = 2;

  using Load = std::function<MicroBatch(StageId, MicroBatchId)>;
  /// [] each, scaled sums.
  using Losses = std::unordered_map<MicroBatchId, at::Tensor>;
  /// Runs the instructions with micro-batches from `load`, and leaves losses in the executor.
  using Run = std::function<void(std::span<const Instruction>, const Load& load)>;

  /// Whether the next step runs as it is, as one of the first. Counts it.
  [[nodiscard]] bool is_before();
  /// Does the step's part: records it first where nothing is, or not with micro-batches of these sizes. `run` then does
  /// that for `record`, and has to leave nothing under way. `losses` become the step's.
  void run(std::span<const Instruction> part, const Load& load, const RecordWork& record, const Run& run,
           Losses& losses);
  /// How often a step was recorded.
  [[nodiscard]] int recordings() const { return recordings_; }

 private:
  using Place = std::pair<StageId, MicroBatchId>;
  using Batches = std::map<Place, MicroBatch>;
  static Batches load_all(std::span<const Instruction> part, const Load& load);
  [[nodiscard]] bool has_sizes_of(Batches& batches);
  void take_over(Batches& batches);

  int steps_before_ = kStepsBefore;
  int recordings_ = 0;
  Batches batches_;  // what the recorded forwards read
  Losses losses_;    // what they leave
  std::unique_ptr<RecordedWork> work_;
};

}  // namespace chimera
