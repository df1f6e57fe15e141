#pragma once

// The training loop of a rank. Every rank of a job runs the same loop for the stages of its worker. Messages and
// all-reduces of each step synchronize the ranks. A step has five parts:
//
//   load      loader.h            get the micro-batches of the rank's stages, prefetched in the step before
//   run       runtime/executor.h  run the worker's program: forwards, backwards, messages, gradient all-reduces
//   sum       runtime/executor.h  sum losses, norms and requests for a save over all ranks (instruction ReduceScalars)
//   update    trained_model.h     update the weights, with gradients clipped by the summed norm
//   close     below               compare replicas, validate, sample text, report metrics, save
//
// Trainer only sequences these parts. Its members own the state: TrainedModel the weights, ReplicaCheck the hashes of
// replicas, LossGuard the counts of skipped updates, RankReplacement what the replacement of a lost rank needs,
// Checkpointer the saves, and StepPosition the place in the loop. run.cc makes a Trainer on every rank.

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

/// Position of the training loop. Steps count from 1. A step is first computing, then updated (it has changed the
/// weights), then closed. After the loss of a rank, the loop continues either by computing a step, or by closing a step
/// that was updated; resume() decides which.
class StepPosition {
 public:
  /// `first` is the number of steps that earlier runs have made.
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
  /// Sets the position after `done` updated steps, of which earlier runs made `first`. If this run made the last of
  /// them, the loop closes it again.
  void resume(std::int64_t first, std::int64_t done) {
    first_ = first;
    step_ = done > first ? done : first + 1;
    phase_ = done > first ? Phase::Updated : Phase::Computing;
  }

  [[nodiscard]] std::int64_t first() const { return first_; }
  /// Returns the current step: the step that is computing or updated; when it is closed, the last step.
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

/// The training loop of one rank. Not thread-safe. Borrows job and transport.
class Trainer {
 public:
  using OnStep = std::function<void(const StepMetrics&)>;

  /// With WeightOrigin::Replacement, this rank replaces a lost one, and rejoin() must be called first.
  Trainer(const Job& job, RankId rank, Transport& transport, WeightOrigin origin = WeightOrigin::Own);

  /// Trains all remaining steps. Calls `on_step` after each step, before a checkpoint is saved. If the job saves
  /// checkpoints, it ends early on a stop request (stop_signals.h). Throws the errors of Executor::run(), and
  /// FinalError if replicas differ or the loss has a spike. If a rank was lost, it may be called again after
  /// drop_step() and rejoin(); `on_step` may then be called again for the last step.
  RunSummary run(const OnStep& on_step);
  /// Runs one step without `on_step`, validation and saves, for tests. `step` counts from 0; call it for all steps in
  /// order. In an asynchronous schedule, micro-batches of later steps are already in the pipeline when it returns,
  /// unless `step` is the last of its Job::flush_interval().
  StepMetrics train_step(std::int64_t step);
  /// Returns the mean loss over at most --validate-batches mini-batches of validation data.
  double validation_loss() { return validation_.loss(steps_.step()); }

  /// Abandons the current step after the loss of a rank. Not for asynchronous schedules or --shard-optimizer.
  void drop_step();
  /// Resumes after the loss of a rank, together with its replacement (rank_replacement.h). All ranks call it over new
  /// connections; ranks that were not lost have called drop_step() before. Throws the errors of
  /// agree_on_resume_state().
  void rejoin();
  /// Returns the position. If the last step is not closed (StepPosition::is_closed()), `on_step` was not called for it.
  [[nodiscard]] const StepPosition& position() const { return steps_; }

  /// Saves the last step if it is not saved yet. Returns false if this fails.
  [[nodiscard]] bool finish_checkpoints() { return !checkpointer_ || checkpointer_->finish(last_); }

  /// Starts or stops recording the times of instructions, and forgets earlier ones. If `sample_memory` is set, also
  /// calls it between every two instructions.
  void trace(bool on, std::function<MemorySample()> sample_memory = {});
  /// Returns null if tracing is off.
  [[nodiscard]] const Tracer* tracer() const { return tracer_ ? &*tracer_ : nullptr; }

  [[nodiscard]] const TrainedModel& model() const { return model_; }
  /// Returns the current instruction or, if there is none, the current step, as text for error messages.
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
