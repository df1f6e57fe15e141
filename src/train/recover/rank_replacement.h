#pragma once

// Replacement of a lost rank (--recover twin). The launcher starts a new process in place of the lost rank, and all
// ranks connect again. With --recover reroute there may be no new process; the rest is the same. The surviving ranks
// may have got to different points: some have updated their weights in the last step, others have not. The new process
// has no weights. The ranks agree on one state to resume from:
//
//   rank 0   step 7 updated            ->  resumes after step 7; sends loss and norm of step 7
//   rank 1   step 6 updated, voted 7   ->  makes the update of step 7 with this norm
//   rank 2   replacement, no weights   ->  gets weights and optimizer state from a replica of its stages
//
// A rank that gets an extra copy of a stage (engine/rerouted_run.h) receives its state in the same way.
//
// To *vote* for a step means to join the all-reduce of its losses and norms; a rank does so when it has all gradients
// of the step. No rank gets the result, and so can update its weights, before all ranks have voted. Therefore a rank
// that is one step behind has voted for the missing step and has all its gradients.

#include <cstddef>
#include <span>

#include "schedule/rank_layout.h"
#include "telemetry/metrics.h"
#include "train/recover/checkpointer.h"
#include "train/setup/rank_context.h"
#include "train/setup/trained_model.h"

namespace chimera {

/// State of a rank that has left a step after a rank loss.
struct RankState {
  bool has_weights = true;                   ///< False on a new process that replaces a lost rank
  std::int64_t done = 0;                     ///< Number of steps that are complete, with their update
  std::int64_t gradients_complete_step = 0;  ///< Last step (from 1) that the rank has voted for
  /// Parameter groups (indices) that a rank with weights holds as new extra copies, but whose values it lacks
  std::set<std::size_t> lacking = {};

  [[nodiscard]] bool has(std::size_t group) const { return has_weights && !lacking.contains(group); }
};

/// The state that all ranks resume from.
struct ResumeState {
  std::int64_t done = 0;              ///< Number of complete steps: the maximum over all ranks
  RankId metrics_source{0};           ///< Rank with this number of steps; it sends loss and norm to the others
  std::vector<RankId> state_sources;  ///< [group]: rank that sends the group's state to the new process
};

/// Computes the state to resume from. `states` is [rank]. `groups` has the sets of ranks with equal state: one per
/// parameter group or, if ranks share layers (tensor parallelism), one per parameter group and part of its layers, with
/// `lanes` parts one after another (TensorRanks::in_lanes()). Throws Error if no rank of a group has weights, if a rank
/// with weights is two steps behind the furthest rank, or if it is one step behind and has not voted for the missing
/// step.
[[nodiscard]] ResumeState agree_on_resume_state(std::span<const RankState> states, const RankGroups& groups,
                                                std::size_t lanes = 1);

/// State of the training loop after a step, besides weights and optimizer state; equal on all ranks.
struct LoopState {
  StepMetrics last;                 ///< Metrics of the last step
  std::int64_t skipped_in_row = 0;  ///< Number of consecutive skipped steps up to now, for LossGuard
  std::int64_t first_step = 0;      ///< Number of steps before this run
  SavePlans plans;                  ///< Checkpointer::plans()
};

/// One rank's part in a replacement. The Trainer (train/loop/trainer.h) drives it. Borrows its arguments.
class RankReplacement {
 public:
  /// `gradients_complete_step` is the last step that this rank has voted for; 0: none.
  RankReplacement(const RankContext& self, TrainedModel& model, std::int64_t gradients_complete_step = 0)
      : self_(self), model_(model), gradients_complete_step_(gradients_complete_step) {}

  /// Records that this rank votes for `step` (from 1). Call it right before the rank joins the step's all-reduce.
  void note_gradients_complete(std::int64_t step) { gradients_complete_step_ = step; }

  [[nodiscard]] std::int64_t gradients_complete_step() const { return gradients_complete_step_; }

  // After a loss, all ranks call the following functions in this order, over new connections.

  /// Returns the state to resume from, by agree_on_resume_state(), and throws its errors. `done` is the number of steps
  /// that this rank has completed.
  [[nodiscard]] ResumeState agree(std::int64_t done);
  /// Replaces `state` on all ranks by the state of rank `source`. Collective.
  void share(LoopState& state, RankId source) const;
  /// Sends weights and optimizer state to the ranks that lack them. `resume` is the result of agree(). Ranks that were
  /// a step behind must have made the missing update before. `updates` is the number of updates so far. If the
  /// optimizer state is divided into shards that two ranks each keep (engine/sharded_optimizer.h), the new process gets
  /// the state of its own shards only; Optimizer::share() then sends it the other weights.
  void send_state(const ResumeState& resume, std::int64_t updates);

 private:
  const RankContext& self_;
  TrainedModel& model_;
  std::int64_t gradients_complete_step_;
  std::vector<RankState> states_;  // [rank], from agree()
};

}  // namespace chimera
