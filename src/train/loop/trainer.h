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

#include "engine/canonical.h"
#include "engine/optimizer.h"
#include "engine/step_driver.h"
#include "model/make_stage.h"
#include "schedule/rank_layout.h"
#include "telemetry/metrics.h"
#include "train/loop/loader.h"
#include "train/observe/device_progress.h"
#include "train/observe/measured_step.h"
#include "train/recover/checkpointer.h"
#include "train/recover/copies.h"
#include "train/setup/job.h"
#include "transport/forwarding_transport.h"
#include "transport/transport.h"

namespace chimera {

/// State of a rank that has left a step after a rank loss. A rank votes when it has all gradients: it contributes its
/// losses and norms to a sum over all ranks. Then it updates its weights.
struct RankState {
  bool has_weights = true;                   ///< False on a replacement of a lost rank
  std::int64_t done = 0;                     ///< Steps whose sum it has and whose update it has made
  std::int64_t gradients_complete_step = 0;  ///< Last step (from 1) with all gradients complete
};

struct ResumeState {
  std::int64_t done = 0;              ///< On all ranks; if one has made an update, all make it
  RankId metrics_source{0};           ///< Sends loss and norm to the others
  std::vector<RankId> state_sources;  ///< [parameter group]: senders of the state
};

/// `states` is [rank]. Throws Error if no rank of a group has weights, or if a rank with weights is two steps behind
/// the furthest rank, or one step without a vote for it.
[[nodiscard]] ResumeState agree_on_resume_state(std::span<const RankState> states, const RankGroups& groups);

inline constexpr std::int64_t kMostSkippedInRow = 10;

enum class WeightOrigin : std::uint8_t {
  Own,          ///< Initial weights
  Replacement,  ///< No weights yet; take_over() must come first
};

/// Training loop of a rank, with its stages and optimizer. Not thread-safe. Borrows job and transport.
class Trainer {
 public:
  Trainer(const Job& job, RankId rank, Transport& transport, WeightOrigin beginning = WeightOrigin::Own);

  /// Trains all remaining steps; calls `on_step` after each, before a checkpoint is saved. A job with checkpoints ends
  /// early on a stop request (stop_signals.h). Throws the errors of Executor::run, and FinalError if replicas differ.
  /// After drop_step() and take_over() it may be called again; `on_step` may then repeat the last step.
  RunSummary run(const std::function<void(const StepMetrics&)>& on_step);

  /// Drops the current step after a rank loss. Not for asynchronous schedules or --shard-optimizer.
  void drop_step();
  /// Call on all ranks over new connections, on survivors after drop_step(). Agrees on ResumeState, then sends all
  /// state to replacements. Throws the errors of agree_on_resume_state().
  void take_over();
  /// Metrics of the last step may not be written yet.
  [[nodiscard]] std::int64_t steps_done() const { return done_; }
  /// Returns whether comparison, validation, metrics and save after the last step are done.
  [[nodiscard]] bool is_closed() const { return is_closed_; }

  /// Saves the last step if needed. Returns false on failure.
  [[nodiscard]] bool finish_checkpoints() { return !checkpointer_ || checkpointer_->finish(last_metrics_); }

  /// `step` counts from 0, in order. An asynchronous schedule has then already started later steps, up to the next
  /// flush (Job::run_of).
  StepMetrics train_step(std::int64_t step);
  /// Returns the mean over at most --validate-batches mini-batches.
  double validation_loss();
  /// Returns the model's continuation of the job's prompt.
  std::string say();

  /// Discards earlier traces.
  void trace(bool on, std::function<MemorySample()> look_at_memory = {});
  /// Returns null if tracing is off.
  [[nodiscard]] const Tracer* tracer() const { return tracer_ ? &*tracer_ : nullptr; }

  /// Returns stages and tied matrix of this worker.
  [[nodiscard]] const std::map<ParameterGroupId, ParameterGroup*>& trained() const { return trained_; }
  /// Each stage and the tied matrix belong to their first worker in group 0.
  [[nodiscard]] std::vector<const ParameterGroup*> own_groups() const;
  [[nodiscard]] std::int64_t optimizer_state_bytes() const { return optimizer_->state_bytes(); }
  /// Returns the current instruction, else the step, for error messages.
  [[nodiscard]] std::string current() const;

 private:
  void warm_up(std::int64_t step);
  StepMetrics do_step(std::int64_t step);
  bool close_step(const std::function<void(const StepMetrics&)>& on_step);
  void agree_on_last_step(RankId metrics_source);
  void transfer_state(ParameterGroupId group, RankId giver, RankId taker);
  [[nodiscard]] std::vector<at::Tensor> state_of(ParameterGroupId group) const;
  [[nodiscard]] InitialValue first_value() const;
  void make_model();
  void make_optimizers();
  void make_checkpointer();
  bool save_where_due(const StepMetrics& metrics);
  void watch_loss(StepMetrics& metrics);
  void rehearse_flip(std::string_view point, std::size_t tensor);
  [[nodiscard]] StateHashes hash_copies();
  void compare_copies();
  void repair(const DeviatingStage& stage);
  void require_unchanged();
  std::string hash_parameters();
  void note_instruction(const Instruction& instruction);
  std::function<void(const std::string&, bool)> skip_hook(std::int64_t step);
  const std::vector<Instruction>& instructions(std::int64_t step);
  void optimizer_step(std::int64_t step, double gradient_norm);
  void update_weights(StageId stage, MicroBatchId last, double gradient_norm);
  RunSummary summarize();
  std::vector<OpTimes> gather_op_times();

  const Job& job_;
  DeterministicKernels kernels_;
  RankId rank_;
  GroupWorker place_;
  at::Device device_;
  std::optional<VerifiedMessages> verified_;
  Transport& transport_;
  Loader loader_;
  DeviceProgress progress_;
  std::map<StageId, std::unique_ptr<Stage>> stages_;
  std::unique_ptr<TiedWeight> tied_;  // Null if the matrix is not used here
  std::map<ParameterGroupId, ParameterGroup*> trained_;
  std::unique_ptr<Optimizer> optimizer_;                            // Null if asynchronous
  std::map<StageId, std::unique_ptr<Optimizer>> stage_optimizers_;  // Asynchronous only
  std::unique_ptr<StepDriver> driver_;
  std::vector<StageCopies> copies_;
  StateHashes hashes_;  // Last comparison; empty after an update
  std::optional<Checkpointer> checkpointer_;
  StepMetrics last_metrics_;
  std::optional<Tracer> tracer_;
  double optimizer_seconds_ = 0;
  std::int64_t skipped_ = 0;
  std::int64_t skipped_in_row_ = 0;
  std::int64_t step_ = 0;    // Current step, from 0
  std::int64_t first_step_;  // First step of this run, from 0
  std::int64_t done_;
  std::int64_t voted_for_ = 0;
  bool has_weights_;
  bool is_closed_ = true;
  bool is_warm_ = false;
  std::vector<double> step_seconds_;
  std::vector<Instruction> piece_;  // Asynchronous: current step
};

}  // namespace chimera
