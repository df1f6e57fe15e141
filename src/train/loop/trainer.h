#pragma once

// The training loop of a rank. Every rank of a job runs the same loop for the stages of its worker. Messages and
// all-reduces of each step synchronize the ranks. A step has five parts:
//
//   load      loader.h            get the micro-batches of the rank's stages, prefetched in the step before
//   run       runtime/executor.h  run the worker's program: forwards, backwards, messages, gradient all-reduces
//   sum       runtime/executor.h  sum losses, norms and requests for a save over all ranks (instruction ReduceScalars)
//   update    TrainedModel        update the weights, with gradients clipped by the summed norm
//   close     below               compare replicas, validate, sample text, report metrics, save
//
// Trainer only sequences these parts. Its members own the state: TrainedModel the weights, StepDriver the executor,
// learning rate and clipping, ReplicaCheck the hashes of replicas, LossGuard the counts of skipped updates,
// RankReplacement what the replacement of a lost rank needs, Checkpointer the saves, and StepPosition the place in the
// loop. run.cc makes a Trainer on every rank.

#include <exception>

#include "engine/step_driver.h"
#include "telemetry/metrics.h"
#include "train/loop/loader.h"
#include "train/loop/step_position.h"
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

class SharedTimes;  // engine/adaptation.h

/// The training loop of one rank. Not thread-safe. Borrows job and transport.
class Trainer {
 public:
  using OnStep = std::function<void(const StepMetrics&)>;

  /// State that a rank's trainer hands to the next one, if the run continues as another job: with other ranks
  /// (--recover reroute) or in another order.
  struct Kept {
    TrainedModel::Kept model;
    LoopState loop;
    std::int64_t done = 0;                     ///< Steps that are complete, with their update
    std::int64_t gradients_complete_step = 0;  ///< Last step (from 1) for which the rank had all gradients
  };
  /// With WeightOrigin::Replacement, this rank replaces a lost one. With `kept` (may be null), this trainer continues
  /// with the rank's state in another job. In both cases, call rejoin() first.
  Trainer(const Job& job, RankId rank, Transport& transport, WeightOrigin origin = WeightOrigin::Own,
          const Kept* kept = nullptr);
  /// Returns the state, after drop_step(). This trainer must not run any more.
  [[nodiscard]] Kept keep() const;

  /// Trains all remaining steps. Calls `on_step` after each step, before a checkpoint is saved. If the job saves
  /// checkpoints, it ends early on a stop request (train/recover/stop_signals.h). Throws the errors of Executor::run(),
  /// and FinalError if replicas differ or the loss has a spike. If a rank was lost, it may be called again after
  /// drop_step() and rejoin(); `on_step` may then be called again for the last step. With `until`, stops after this
  /// step (from 1) without a summary, and may be called again to continue.
  RunSummary run(const OnStep& on_step, std::optional<std::int64_t> until = {});
  /// Runs one step without `on_step`, validation and saves, for tests. `step` counts from 0; call it for all steps in
  /// order. In an asynchronous schedule, micro-batches of later steps are already in the pipeline when it returns,
  /// unless `step` is the last of its Job::flush_interval().
  StepMetrics train_step(std::int64_t step);
  /// Runs the forwards of the schedule on mini-batches of the validation split, at least one, at most
  /// --validate-batches. Returns their mean loss, the same on all ranks. Collective.
  double validation_loss();

  /// Abandons the current step after the loss of a rank. Not for asynchronous schedules.
  void drop_step();
  /// Resumes after the loss of a rank, together with its replacement (train/recover/rank_replacement.h). All ranks call
  /// it over new connections; ranks that were not lost have called drop_step() before. Throws the errors of
  /// agree_on_resume_state().
  void rejoin();
  /// Records op times in `times` (borrowed), from which --adapt all finds slow ranks.
  void share_times(SharedTimes& times) { shared_ = &times; }

  /// Returns the position. If the last step is not closed (StepPosition::is_closed()), `on_step` was not called for it.
  [[nodiscard]] const StepPosition& position() const { return steps_; }

  /// Saves the last step if it is not saved yet. Returns false if this fails.
  [[nodiscard]] bool finish_checkpoints() { return !checkpointer_ || checkpointer_->finish(last_); }
  /// Saves the last step of a run without --checkpoint in `folder` or, if the name is in use, `folder`.2, .3 and so on.
  /// All ranks call it. Returns the path of the checkpoint, empty if this fails.
  [[nodiscard]] std::string save_in(const std::string& folder) const;

  /// Starts or stops recording the times of instructions, and forgets earlier ones. If `sample_memory` is set, also
  /// calls it between every two instructions.
  void trace(bool on, std::function<MemorySample()> sample_memory = {});
  /// Returns null if tracing is off.
  [[nodiscard]] const Tracer* tracer() const { return tracer_ ? &*tracer_ : nullptr; }

  [[nodiscard]] const TrainedModel& model() const { return model_; }
  [[nodiscard]] const Job& job() const { return self_.job; }
  [[nodiscard]] RankId rank() const { return self_.world_rank; }
  /// Returns the current instruction or, if there is none, the current step, as text for error messages.
  [[nodiscard]] std::string current() const;

 private:
  [[nodiscard]] const TrainOptions& options() const { return self_.job.options; }
  [[nodiscard]] LoopState loop_state() const;
  void run_step(std::int64_t step);
  [[nodiscard]] StepHooks hooks_of(std::int64_t step);
  [[nodiscard]] std::vector<Instruction> program_of(std::int64_t step) const;
  void note_instruction(const Instruction& instruction);
  void update(std::int64_t step, double gradient_norm);
  void update_stage(StageId stage, MicroBatchId last, double gradient_norm);
  void note_metrics(const StepResult& result, double seconds);
  bool close_step(const OnStep& on_step);
  /// Runs the ops of a step once, without messages and updates (device_warm_up.cc). Collective.
  void warm_up_device(std::int64_t step);
  /// Returns the text that the model generates after --prompt, the same on all ranks. Collective.
  [[nodiscard]] std::string sample_text();
  bool save_if_due();
  [[nodiscard]] std::string hash_parameters();

  RankContext self_;
  StepPosition steps_;
  Loader loader_;
  DeviceProgress progress_;
  TrainedModel model_;
  StepDriver driver_;
  ReplicaCheck replicas_;
  LossGuard losses_;
  RankReplacement replacement_;
  std::optional<Checkpointer> checkpointer_;
  std::optional<Tracer> tracer_;
  RunTimes times_;
  SharedTimes* shared_ = nullptr;
  StepMetrics last_;  // Of the last step
  bool is_warm_ = false;
  std::exception_ptr unshared_;  // Error after an update that this rank has made, but not shared
};

}  // namespace chimera
