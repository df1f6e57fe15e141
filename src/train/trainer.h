#pragma once
// The training loop of one rank: a worker of one data-parallel group.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/executor.h"
#include "train/job.h"
#include "train/metrics.h"
#include "train/optimizer.h"
#include "transport/group_transport.h"

namespace chimera {

/// What a run measured, over all workers.
struct RunSummary {
  OpTimes op_times{0};           // without the first step, where there are more
  double step_seconds = 0;       // median of the steps, likewise
  double optimizer_seconds = 0;  // mean of the slowest worker's optimizer step
};

/// Holds a worker's stages and optimizer and runs the job's steps. One thread; the job and the transport are borrowed.
class Trainer {
 public:
  /// `transport` connects all ranks.
  Trainer(const Job& job, WorkerId rank, Transport& transport);

  /// Trains all steps and calls `on_step` after each. Throws Error where the loss is not finite.
  RunSummary run(const std::function<void(const StepMetrics&)>& on_step);

  /// One step: gradients, clipping, update. `step` counts from 0.
  StepMetrics train_step(std::int64_t step);
  /// Mean loss over the first kValidationBatches mini-batches of the validation split, or fewer where it has fewer.
  double validate();

  /// What this worker trains, for tests and inspection: its stages and, as one above the last, the tied matrix.
  [[nodiscard]] const std::map<StageId, ParameterGroup*>& trained() const { return trained_; }
  /// The instruction under way, or else the step, for error messages.
  [[nodiscard]] std::string current() const;

 private:
  void make_model();
  double total_loss(const StepResult& result) const;
  MicroBatch load(const Samples& samples, std::int64_t step, StageId stage, MicroBatchId micro_batch) const;
  MicroBatch load_training(std::int64_t step, StageId stage, MicroBatchId micro_batch) const;
  std::int64_t first_sample(MicroBatchId micro_batch) const;
  std::string hash_parameters();
  void optimizer_step(std::int64_t step, double gradient_norm);
  RunSummary summarise(std::vector<double> step_seconds);

  const Job& job_;
  WorkerId rank_;
  GroupWorker place_;
  GroupTransport transport_;
  std::map<StageId, std::unique_ptr<Stage>> stages_;
  std::unique_ptr<TiedWeight> tied_;  // where the model is tied and this worker uses its matrix
  std::map<StageId, ParameterGroup*> trained_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Executor> executor_;
  double optimizer_seconds_ = 0;
  std::int64_t step_ = 0;  // under way, from 0
};

}  // namespace chimera
