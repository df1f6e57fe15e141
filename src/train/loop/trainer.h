#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/optimizer.h"
#include "model/initial_values.h"
#include "runtime/executor.h"
#include "schedule/rank_layout.h"
#include "telemetry/metrics.h"
#include "train/loop/loader.h"
#include "train/observe/device_progress.h"
#include "train/observe/stragglers.h"
#include "train/recover/checkpointer.h"
#include "train/recover/copies.h"
#include "train/setup/job.h"
#include "transport/forwarding_transport.h"
#include "transport/transport.h"

// Where ranks go on that have lost others in the middle of a step: all with the same one.

// The training loop of one rank: a worker of one data-parallel group.

namespace chimera {

/// What a rank has when it has left a step. A rank updates its weights once it has the sum of all ranks' losses and
/// norms, and hands in its part of that sum once it has all gradients of its stages: that is its vote.
struct RankState {
  bool has_weights = true;     ///< else it takes the place of a rank that was lost
  std::int64_t done = 0;       ///< steps whose sum it has, and whose update it has made
  std::int64_t voted_for = 0;  ///< the step, from 1, whose gradients it has last had all of
};

/// What they make of it.
struct Settlement {
  std::int64_t done = 0;       ///< steps that all ranks shall have done: if one of them has made an update, all make it
  RankId teller{0};            ///< has done them: tells the others loss and norm of the last one
  std::vector<RankId> givers;  ///< [parameter group]: gives weights and optimizer state to those that have none
};

/// `states`: [rank]. A rank that has weights is never further than one step ahead of the others; those that are behind
/// have all gradients that the update takes. Throws Error where it is otherwise, or no rank of a group has weights.
[[nodiscard]] Settlement settle(std::span<const RankState> states, const RankGroups& groups);

/// What a run measured, over all workers.
struct RunSummary {
  std::int64_t steps = 0;        // that were done; without any nothing was measured
  bool is_whole = true;          // all that the job has; else it was asked to end
  OpTimes op_times{0};           // without the first step, where there are more
  double step_seconds = 0;       // median of the steps, likewise
  double optimizer_seconds = 0;  // mean of the slowest worker's optimizer step
  std::vector<RankPace> paces;   // of each rank, where the job reports stragglers
};

/// Steps in a row whose update may be left out before the run ends: it will not find back by itself.
inline constexpr std::int64_t kMostSkippedInRow = 10;

/// How a trainer begins.
enum class Beginning : std::uint8_t {
  Own,          ///< with the weights that the job begins with
  Replacement,  ///< with none: in the place of a rank that was lost; take_over() comes first
};

/// Holds a worker's stages and optimizer and runs the job's steps. One thread; the job and the transport are borrowed.
class Trainer {
 public:
  /// `transport` connects all ranks.
  Trainer(const Job& job, RankId rank, Transport& transport, Beginning beginning = Beginning::Own);

  /// Trains all steps that the job has left and calls `on_step` after each. Then checkpoints are saved, where the job
  /// saves any; such a job ends before its last step where it is asked to (stop_signals.h). Throws what Executor::run
  /// throws, which is Error where a loss or the gradient norm is not finite, and FinalError where copies differ.
  /// Called again after that, drop_step() and take_over() it goes on; `on_step` may then get the last step once more.
  RunSummary run(const std::function<void(const StepMetrics&)>& on_step);

  /// After ranks were lost: gives up the step under way, and lets go of all that the transport has under way. Not for
  /// asynchronous schedules, nor with --shard-optimizer.
  void drop_step();
  /// To be called by all ranks, over new connections, once those that were there before have dropped the step. If one
  /// of them has made the update of a step, all make it (settle()); then those that have no weights get them, with all
  /// else that a rank remembers, from others. Throws what settle() throws.
  void take_over();
  /// Steps that are done, from the first of all; their line of metrics may still be missing.
  [[nodiscard]] std::int64_t steps_done() const { return done_; }
  /// Whether all that follows the last of them is done too.
  [[nodiscard]] bool is_closed() const { return is_closed_; }

  /// After run(): saves what the last step left, unless that is saved, or nothing is to be. Returns false where it
  /// could not.
  [[nodiscard]] bool finish_checkpoints() { return !checkpointer_ || checkpointer_->finish(last_metrics_); }

  /// One step: gradients, clipping, update. `step` counts from 0, and steps come in order. After a step of an
  /// asynchronous schedule the next ones are under way already, up to the end of the run (Job::run_of).
  StepMetrics train_step(std::int64_t step);
  /// Mean loss over the first --validate-batches mini-batches of the validation split, or fewer where it has fewer.
  double validation_loss();
  /// What the model says after the job's prompt.
  std::string say();

  /// Turns on or off the record of when training's instructions run. What was recorded before is forgotten.
  void trace(bool on, std::function<MemorySample()> look_at_memory = {});
  /// The record; null where it is off.
  [[nodiscard]] const Tracer* tracer() const { return tracer_ ? &*tracer_ : nullptr; }

  /// What this worker trains, for tests and inspection: its stages and the tied matrix, where it owns one.
  [[nodiscard]] const std::map<ParameterGroupId, ParameterGroup*>& trained() const { return trained_; }
  /// Those of them for which this rank answers: of each stage, and of the tied matrix, the first worker of group 0
  /// does, so that each parameter of the model belongs to one rank.
  [[nodiscard]] std::vector<const ParameterGroup*> own_groups() const;
  /// Bytes of optimizer state on this worker.
  [[nodiscard]] std::int64_t optimizer_state_bytes() const { return optimizer_->state_bytes(); }
  /// The instruction under way, or else the step, for error messages.
  [[nodiscard]] std::string current() const;

 private:
  StepMetrics do_step(std::int64_t step);
  bool close_step(const std::function<void(const StepMetrics&)>& on_step);
  void agree_on_last_step(RankId teller);
  void give_or_take(ParameterGroupId group, RankId giver, RankId taker);
  [[nodiscard]] std::vector<at::Tensor> state_of(ParameterGroupId group) const;
  [[nodiscard]] FirstValue first_value() const;
  void make_model();
  void make_optimizers();
  void make_checkpointer();
  bool save_where_due(const StepMetrics& metrics);
  void watch_loss(StepMetrics& metrics);
  void rehearse_flip(std::string_view point, std::size_t tensor);
  [[nodiscard]] StateHashes hash_copies() const;
  void compare_copies();
  void repair(const DifferingStage& stage);
  void require_unchanged() const;
  std::string hash_parameters();
  void note_instruction(const Instruction& instruction);
  std::function<void(const std::string&, bool)> skip_hook(std::int64_t step);
  const std::vector<Instruction>& instructions(std::int64_t step);
  [[nodiscard]] double learning_rate(std::int64_t step) const;
  void optimizer_step(std::int64_t step, double gradient_norm);
  void update_weights(StageId stage, MicroBatchId last, double gradient_norm);
  RunSummary summarise();
  std::vector<RankPace> compare_paces();

  const Job& job_;
  RankId rank_;
  GroupWorker place_;
  at::Device device_;
  std::optional<VerifiedMessages> verified_;  // where the job verifies messages
  Transport& transport_;
  Loader loader_;
  DeviceProgress progress_;
  std::map<StageId, std::unique_ptr<Stage>> stages_;
  std::unique_ptr<TiedWeight> tied_;  // where the model is tied and this worker uses its matrix
  std::map<ParameterGroupId, ParameterGroup*> trained_;
  std::unique_ptr<Optimizer> optimizer_;                            // of all stages
  std::map<StageId, std::unique_ptr<Optimizer>> stage_optimizers_;  // in its place, where schedules are asynchronous
  std::unique_ptr<Executor> executor_;
  std::vector<StageCopies> copies_;
  StateHashes hashes_;                        // when they were compared last, unless an update came after
  std::optional<Checkpointer> checkpointer_;  // where the job saves checkpoints
  StepMetrics last_metrics_;                  // of the last step that was done
  std::optional<Tracer> tracer_;
  double optimizer_seconds_ = 0;
  std::int64_t skipped_ = 0;         // steps without an update, so far
  std::int64_t skipped_in_row_ = 0;  // up to the last one
  std::int64_t step_ = 0;            // under way, from 0
  std::int64_t first_step_;          // of the run, from 0
  std::int64_t done_;                // steps
  std::int64_t voted_for_ = 0;       // see RankState
  bool has_weights_;                 // see RankState
  bool is_closed_ = true;            // what follows the last step is done too
  std::vector<double> step_seconds_;
  std::vector<Instruction> piece_;  // asynchronous: that of the step under way
};

}  // namespace chimera
