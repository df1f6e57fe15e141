#pragma once
// One rank of a run that trains a user's model: a worker of one data-parallel group.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "engine/fit_run.h"
#include "engine/optimizer.h"
#include "runtime/executor.h"
#include "transport/transport.h"

namespace chimera {

/// What a step did, the same on every rank.
struct FitStep {
  std::int64_t step = 0;  // from 1
  double loss = 0;        // mean over what the loss counted
  double gradient_norm = 0;
  double learning_rate = 0;
};

/// Holds the stages of one rank and trains them. One thread; run and transport are borrowed. All ranks make theirs and
/// call train_step() together.
class RankFit {
 public:
  /// `transport` connects all ranks: threads (transport/threads/thread_transport.h) or processes
  /// (transport/gloo/gloo_transport.h). Makes the rank's stages, makes their copies equal and finds the shapes of
  /// messages. Throws ConfigError where a module cannot be trained so; see ModuleStage.
  RankFit(const FitRun& run, RankId rank, Transport& transport);

  /// `step` counts from 0. Throws Error where the loss is not finite or nothing was counted.
  FitStep train_step(std::int64_t step);
  /// The same with an update of the caller's own: `update` is given the norm of all gradients and may change the
  /// gradients and the parameters of stages(). FitOptions' optimizer, learning rate and clipping count for nothing
  /// then.
  using Update = std::function<void(double gradient_norm)>;
  FitStep train_step(std::int64_t step, const Update& update);
  /// The loss on the step's samples; forwards alone, without graphs.
  double validation_loss(std::int64_t step);

  [[nodiscard]] const std::map<StageId, std::unique_ptr<ModuleStage>>& stages() const { return stages_; }
  /// The instruction under way, for error messages; empty between steps.
  [[nodiscard]] std::string current() const { return executor_->current(); }

 private:
  void load_targets(std::int64_t step);
  StepResult run(const Program& program, std::int64_t step, const Update& update);
  MicroBatch load(std::int64_t step, StageId stage, MicroBatchId micro_batch) const;

  const FitRun& run_;
  GroupWorker place_;
  Transport& transport_;
  std::map<StageId, std::unique_ptr<ModuleStage>> stages_;
  std::unique_ptr<Optimizer> optimizer_;  // made by the first step that uses it
  std::unique_ptr<Executor> executor_;
  std::map<MicroBatchId, at::Tensor> targets_;  // of the step under way, where the last stage is here
  double loss_scale_ = 1;                       // 1 / count of the step
};

}  // namespace chimera
