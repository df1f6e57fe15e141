#pragma once

// Runs the steps of one rank. Both trainers use it: Trainer (train/loop/trainer.h) for Chimera's own models, and
// RankFit (fit.h) for modules of users. A StepDriver runs a program with the Executor (runtime/executor.h). It adds the
// losses of all micro-batches in data order (run_shape.h), so that the step's loss has the same bits for every
// schedule. It also applies learning rate and clipping to an update.

#include <chrono>

#include "engine/optimizer.h"
#include "engine/optimizer_options.h"
#include "engine/run_shape.h"
#include "runtime/executor.h"

namespace chimera {

/// Learning rates and clipping of a run.
struct UpdateRule {
  LearningRate learning_rate;
  std::int64_t steps = 1;  ///< of the run
  double clip = 0;         ///< maximum global gradient norm; 0: no clipping
};

/// Drives the steps of one rank. Borrows `run`, the stages, the transport and `tied`.
class StepDriver {
 public:
  /// Constructs an Executor from the parameters after `rule`. `message` is size and type of the tensors that stages
  /// exchange, and `tied` the matrix that the first and last stage share (null: none). Call Executor::connect_sums()
  /// before the first step.
  StepDriver(const RunShape& run, UpdateRule rule, WorkerId worker, std::map<StageId, Stage*> stages,
             Transport& transport, TensorSpec message, ProgramShape shape, ParameterGroup* tied = nullptr);

  /// Runs this worker's instructions of a training step. The Executor calls `hooks` for inputs and updates. The result
  /// has the mean loss of the step. If micro-batches have changed places because their work differs, `micro_batch_at`
  /// [place] is the micro-batch of the data that runs there (DealtStep::micro_batch_at in dealing.h), so that losses
  /// are added in the data's order; empty: none has. Throws the errors of Executor::run().
  StepResult train(const std::vector<Instruction>& instructions, const StepHooks& hooks,
                   std::span<const std::int64_t> micro_batch_at = {});
  /// Runs a program that has only forwards, and returns its mean loss. Throws the errors of Executor::run().
  double validate(const Program& program, const StepHooks& hooks);

  /// Returns the learning rate of step `step`, from 0.
  [[nodiscard]] double learning_rate(std::int64_t step) const;
  /// Calls the optimizer with the learning rate of step `step`, from 0. It scales all gradients down if `gradient_norm`
  /// exceeds UpdateRule::clip.
  void update(Optimizer& optimizer, std::int64_t step, double gradient_norm) const;
  /// Makes the update of update() without other ranks (Optimizer::step_alone()). A rank needs it after a recovery if
  /// another rank was lost when all gradients were complete and this rank had not updated its weights.
  void update_alone(Optimizer& optimizer, std::int64_t step, double gradient_norm) const;

  [[nodiscard]] Executor& executor() { return executor_; }
  [[nodiscard]] const Executor& executor() const { return executor_; }

 private:
  using Clock = std::chrono::steady_clock;

  const RunShape& run_;
  UpdateRule rule_;
  WorkerId worker_;
  Transport& transport_;
  Executor executor_;
  Clock::time_point last_end_ = Clock::now();  // End of the previous step, or the construction
  Clock::duration longest_{};                  // Longest step so far, for the time limits of the transport
};

}  // namespace chimera
