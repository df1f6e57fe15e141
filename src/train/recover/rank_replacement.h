#pragma once

// Replacement of a lost rank (--recover twin). A new process takes the place of the lost rank, and all ranks connect
// again. They may stand at different points: some had all gradients of a step and have updated their weights, others
// had not, and the replacement has nothing. They agree on one state to resume from:
//
//   rank 0   step 7 updated            ->  resumes after step 7; sends loss and norm of step 7
//   rank 1   step 6 updated, voted 7   ->  makes the update of step 7 with this norm
//   rank 2   replacement, no weights   ->  gets weights and optimizer state from a replica of its stages
//
// A rank votes for a step when it has all gradients of this step: it adds its losses and norms to a sum over all ranks.
// No rank has this sum before all ranks have voted, so a rank that has not voted is never a step behind.

#include <cstdint>
#include <span>
#include <vector>

#include "schedule/rank_layout.h"
#include "telemetry/metrics.h"
#include "train/recover/checkpointer.h"
#include "train/setup/rank_context.h"
#include "train/setup/trained_model.h"

namespace chimera {

/// State of a rank that has left a step after a rank loss.
struct RankState {
  bool has_weights = true;                   ///< False on a replacement of a lost rank
  std::int64_t done = 0;                     ///< Steps with a sum and an update
  std::int64_t gradients_complete_step = 0;  ///< Last step (from 1) that the rank has voted for
};

struct ResumeState {
  std::int64_t done = 0;              ///< On all ranks; if one has made an update, all make it
  RankId metrics_source{0};           ///< Sends loss and norm to the others
  std::vector<RankId> state_sources;  ///< [parameter group]: senders of the state
};

/// `states` is [rank]. Throws Error if no rank of a group has weights, or if a rank with weights is two steps behind
/// the furthest rank, or one step without a vote for it.
[[nodiscard]] ResumeState agree_on_resume_state(std::span<const RankState> states, const RankGroups& groups);

/// What the training loop of every rank has in common after a step, besides weights and optimizer state.
struct LoopState {
  StepMetrics last;                 ///< Of the last step
  std::int64_t skipped_in_row = 0;  ///< LossGuard
  std::int64_t first_step = 0;      ///< Steps before this run
  SavePlans plans;                  ///< Of the checkpointer, if any
};

/// Votes of this rank, and its side of a replacement. Borrows its arguments.
class RankReplacement {
 public:
  RankReplacement(const RankContext& self, TrainedModel& model) : self_(self), model_(model) {}

  /// Votes for `step` (from 1).
  void note_gradients_complete(std::int64_t step) { gradients_complete_step_ = step; }

  // After a loss, all ranks call the following functions in this order, over new connections.

  /// Returns the state to resume from. `done` counts the finished steps of this rank.
  [[nodiscard]] ResumeState agree(std::int64_t done);
  /// Copies `state` from rank `source` to the other ranks.
  void share(LoopState& state, RankId source) const;
  /// Sends weights and optimizer state to the ranks without. `resume` is the result of agree(); ranks that were a step
  /// behind have made its update. `updates` counts the updates so far.
  void send_state(const ResumeState& resume, std::int64_t updates);

 private:
  const RankContext& self_;
  TrainedModel& model_;
  std::int64_t gradients_complete_step_ = 0;
  std::vector<RankState> states_;  // [rank], from agree()
};

}  // namespace chimera
