#pragma once

// A step of one rank, as both trainers need it: Trainer (train/loop/trainer.h) for Chimera's own models, and RankFit
// (fit.h) for modules of users. It runs the program, turns the losses of all micro-batches into the step's loss, in an
// order that every schedule has in common, and applies learning rate and clipping to an update.

#include <chrono>
#include <cstdint>
#include <map>
#include <vector>

#include "engine/optimizer.h"
#include "engine/optimizer_options.h"
#include "engine/run_shape.h"
#include "runtime/executor.h"

namespace chimera {

/// Learning rates and clipping of a run.
struct UpdateRule {
  LearningRate learning_rate;
  std::int64_t steps = 1;
  double clip = 0;  ///< maximum global gradient norm; 0: no clipping
};

/// Drives the steps of one rank: runs programs, sums their losses in data order, and updates weights. Borrows what the
/// executor borrows, and the run's shape.
class StepDriver {
 public:
  /// The parameters after `rule` are the parameters of Executor. Connects the sums; collective over all ranks.
  StepDriver(const RunShape& run, UpdateRule rule, WorkerId worker, std::map<StageId, Stage*> stages,
             Transport& transport, TensorSpec message, ProgramShape shape, ParameterGroup* tied = nullptr);

  /// Runs a training step, and sets StepResult::loss. Throws the errors of Executor::run().
  StepResult train(const std::vector<Instruction>& instructions, const StepHooks& hooks);
  /// Returns the loss of a program of forwards.
  double validate(const Program& program, const StepHooks& hooks);

  /// Returns the learning rate of step `step`, from 0.
  [[nodiscard]] double learning_rate(std::int64_t step) const;
  /// Updates weights with the step's learning rate, and with gradients clipped by `gradient_norm`.
  void update(Optimizer& optimizer, std::int64_t step, double gradient_norm) const;

  [[nodiscard]] Executor& executor() { return executor_; }
  [[nodiscard]] const Executor& executor() const { return executor_; }

 private:
  using Clock = std::chrono::steady_clock;
  void note_end_of_step();

  const RunShape& run_;
  UpdateRule rule_;
  WorkerId worker_;
  Transport& transport_;
  Executor executor_;
  Clock::time_point last_end_ = Clock::now();  // Of a step
  Clock::duration longest_{};
};

}  // namespace chimera
