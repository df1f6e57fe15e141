#pragma once

// Detects silent data corruption, and can repair it. The ranks that hold the same stage compute the same bits, so a
// difference shows that memory, a processor or a network has changed bits. The Trainer calls compare() every ten steps
// and before each save: the ranks hash their weights and optimizer state (state_hash.h) and compare the hashes in a
// small all-reduce. With --on-different-copies repair, they compare after each step, and the state of the majority
// overwrites the state of the other ranks. Without this flag, or without a majority, the run ends. Each rank also keeps
// its hashes of the last comparison, to detect a change of its own state between two updates.

#include "train/recover/state_hash.h"
#include "train/setup/device_progress.h"
#include "train/setup/rank_context.h"
#include "train/setup/trained_model.h"

namespace chimera {

/// The ranks that hold a parameter group (a stage, or the tied matrix). Their state must be equal after every step.
struct StageReplicas {
  ParameterGroupId group;
  std::vector<RankId> ranks;
  bool are_parts = false;  ///< With tensor parallelism: only parameters that each rank holds in full, such as norms
};

/// Hashes of this rank's state, by parameter group and StageReplicas::are_parts: of the whole group (false), or of the
/// parameters that all ranks which share its layers hold in full (true).
using StateHashes = std::map<std::pair<ParameterGroupId, bool>, std::uint64_t>;

/// A parameter group whose ranks do not all have the same state. The largest set of ranks with equal state is assumed
/// to be right (in a tie, the set that comes first).
struct DeviatingStage {
  StageReplicas copies;
  std::vector<RankId> deviating;  ///< Ranks outside this set
  RankId correct{0};              ///< A rank of this set
  bool has_majority = false;      ///< Whether this set has more than half of the ranks
};

/// The check of one rank. The Trainer (train/loop/trainer.h) drives it. Borrows its arguments.
class ReplicaCheck {
 public:
  ReplicaCheck(const RankContext& self, const TrainedModel& model, DeviceProgress& progress);

  /// Compares the state of all ranks after `step` (from 1). Collective. Repairs deviating ranks if the job has
  /// --on-different-copies repair. If the job does not repair, or there is no majority, throws FinalError on a
  /// deviating rank and PeerFinalError on the others.
  void compare(std::int64_t step);
  /// Calls compare() if the job repairs ranks and there are no hashes yet. Call it before the first step, because
  /// require_unchanged() needs hashes.
  void ensure_hashes(std::int64_t step);
  /// Throws Error if the state of this rank differs from the hashes of the last comparison; does nothing without
  /// hashes. Call it before an update.
  void require_unchanged();
  /// Drops the hashes, because an update is about to change the state.
  void forget() { hashes_.clear(); }

 private:
  [[nodiscard]] StateHashes hash_state();
  void repair(const DeviatingStage& stage, std::int64_t step);

  const RankContext& self_;
  const TrainedModel& model_;
  DeviceProgress& progress_;
  std::vector<StageReplicas> copies_;
  StateHashes hashes_;  // Since the last comparison; empty after an update
};

}  // namespace chimera
