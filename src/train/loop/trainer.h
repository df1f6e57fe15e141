#pragma once

// The training loop of a rank. Every rank of a job runs the same loop over its own part of the model, and they meet in
// each step's messages and sums:
//
//   load      loader.h            micro-batches that the rank's stages read, prefetched in the step before
//   run       runtime/executor.h  the worker's program: forwards, backwards, messages and gradient sums
//   sum       runtime/executor.h  losses, norms and votes for a save, over all ranks, at the program's ReduceScalars
//   update    trained_model.h     weights, with gradients clipped by the summed norm
//   close     below               compare replicas, validate, sample text, report metrics, save
//
// The parts that a step needs own their state: TrainedModel the weights, ReplicaCheck the hashes of replicas, LossGuard
// skipped updates and spikes, RankReplacement the votes that a lost rank's replacement needs, Checkpointer the saves,
// and StepPosition the place in the loop. run.h starts a Trainer on every rank.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/invariant.h"
#include "engine/step_driver.h"
#include "telemetry/metrics.h"
#include "train/loop/loader.h"
#include "train/loop/step_validation.h"
#include "train/observe/measured_step.h"
#include "train/observe/run_times.h"
#include "train/recover/checkpointer.h"
#include "train/recover/loss_guard.h"
#include "train/recover/rank_replacement.h"
#include "train/recover/replica_check.h"
#include "train/setup/device_progress.h"
#include "train/setup/rank_context.h"
#include "train/setup/trained_model.h"

namespace chimera {

/// Place of a loop in its steps, which count from 1. A step is computing, then its weights are updated, then it is
/// closed. After a rank loss the loop continues with computing or closing, and resume() says with which.
class StepPosition {
 public:
  /// `first` steps belong to earlier runs.
  explicit StepPosition(std::int64_t first) { resume(first, first); }

  void begin(std::int64_t step) {
    require_invariant(phase_ != Phase::Updated, "a step begins, but the step before it is not closed");
    step_ = step;
    phase_ = Phase::Computing;
  }
  void note_update() {
    require_invariant(is_computing(), "a step is updated twice");
    phase_ = Phase::Updated;
  }
  void close() {
    require_invariant(phase_ == Phase::Updated, "a step is closed without an update");
    phase_ = Phase::Closed;
  }
  /// Continues after `done` steps, the last of which must be closed again if it belongs to this run.
  void resume(std::int64_t first, std::int64_t done) {
    first_ = first;
    step_ = done > first ? done : first + 1;
    phase_ = done > first ? Phase::Updated : Phase::Computing;
  }

  [[nodiscard]] std::int64_t first() const { return first_; }
  /// Returns the current step: it is next, is computing, or was the last.
  [[nodiscard]] std::int64_t step() const { return step_; }
  /// Returns the number of updated steps.
  [[nodiscard]] std::int64_t done() const { return is_computing() ? step_ - 1 : step_; }
  [[nodiscard]] bool is_computing() const { return phase_ == Phase::Computing; }
  /// Returns whether all updated steps are closed.
  [[nodiscard]] bool is_closed() const { return phase_ != Phase::Updated; }

 private:
  enum class Phase : std::uint8_t { Computing, Updated, Closed };
  std::int64_t first_ = 0;
  std::int64_t step_ = 1;
  Phase phase_ = Phase::Computing;
};

/// Not thread-safe. Borrows job and transport.
class Trainer {
 public:
  using OnStep = std::function<void(const StepMetrics&)>;

  /// A WeightOrigin::Replacement must call rejoin() first.
  Trainer(const Job& job, RankId rank, Transport& transport, WeightOrigin origin = WeightOrigin::Own);

  /// Trains all remaining steps; calls `on_step` after each, before a checkpoint is saved. A job with checkpoints ends
  /// early on a stop request (stop_signals.h). Throws the errors of Executor::run, and FinalError if replicas differ or
  /// the loss has a spike. After drop_step() and rejoin() it may be called again; `on_step` may then repeat the last
  /// step.
  RunSummary run(const OnStep& on_step);
  /// Runs one step without on_step, validation and saves. `step` counts from 0, in order. An asynchronous schedule has
  /// then already started later steps, up to the next flush (Job::steps_around).
  StepMetrics train_step(std::int64_t step);
  /// Returns the mean over at most --validate-batches mini-batches.
  double validation_loss() { return validation_.loss(steps_.step()); }

  /// Drops the current step after a rank loss. Not for asynchronous schedules or --shard-optimizer.
  void drop_step();
  /// Resumes after a rank loss, with a replacement of the lost rank (rank_replacement.h). All ranks call it over new
  /// connections; survivors have called drop_step(). Throws the errors of agree_on_resume_state().
  void rejoin();
  /// The metrics of the last step may not be reported yet: see StepPosition::is_closed().
  [[nodiscard]] const StepPosition& position() const { return steps_; }

  /// Saves the last step if needed. Returns false on failure.
  [[nodiscard]] bool finish_checkpoints() { return !checkpointer_ || checkpointer_->finish(last_); }

  /// Records instruction times from now on, and forgets earlier ones. Samples memory at each boundary if
  /// `sample_memory` is set.
  void trace(bool on, std::function<MemorySample()> sample_memory = {});
  /// Returns null if tracing is off.
  [[nodiscard]] const Tracer* tracer() const { return tracer_ ? &*tracer_ : nullptr; }

  [[nodiscard]] const TrainedModel& model() const { return model_; }
  /// Returns the current instruction, else the step, for error messages.
  [[nodiscard]] std::string current() const;

 private:
  [[nodiscard]] const TrainOptions& options() const { return self_.job.options; }
  void warm_up(std::int64_t step);
  void run_step(std::int64_t step);
  [[nodiscard]] StepHooks hooks_of(std::int64_t step);
  [[nodiscard]] std::vector<Instruction> program_of(std::int64_t step) const;
  void note_instruction(const Instruction& instruction);
  void update(std::int64_t step, double gradient_norm);
  void update_stage(StageId stage, MicroBatchId last, double gradient_norm);
  void note_metrics(const StepResult& result, double seconds);
  bool close_step(const OnStep& on_step);
  bool save_if_due();
  [[nodiscard]] std::string hash_parameters();
  void inject_bit_flip(std::string_view point, std::size_t tensor);

  RankContext self_;
  StepPosition steps_;
  Loader loader_;
  DeviceProgress progress_;
  TrainedModel model_;
  StepDriver driver_;
  StepValidation validation_;
  ReplicaCheck replicas_;
  LossGuard losses_;
  RankReplacement replacement_;
  std::optional<Checkpointer> checkpointer_;
  std::optional<Tracer> tracer_;
  RunTimes times_;
  StepMetrics last_;  // Of the last step
  bool is_warm_ = false;
};

}  // namespace chimera
