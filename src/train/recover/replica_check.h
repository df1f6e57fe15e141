#pragma once

// Comparison and repair of the replicas of each stage. Replicas compute equal bits, so a difference shows that memory,
// a processor or a network has changed bits. Ranks hash their weights and optimizer state (state_hash.h) and compare
// the hashes in a small all-reduce, every ten steps and before each save. With --on-different-copies repair they
// compare after each step, and the state of the majority overwrites deviating replicas; otherwise, or without a
// majority, the run ends. The hashes of the last comparison also show whether the state of this rank changes between
// updates.

#include <cstdint>
#include <map>
#include <vector>

#include "train/recover/state_hash.h"
#include "train/setup/device_progress.h"
#include "train/setup/rank_context.h"
#include "train/setup/trained_model.h"

namespace chimera {

/// Ranks that hold the same state after every step.
struct StageCopies {
  ParameterGroupId group;
  std::vector<RankId> ranks;
};

using StateHashes = std::map<ParameterGroupId, std::uint64_t>;

/// A stage whose replicas differ.
struct DeviatingStage {
  StageCopies copies;
  /// Ranks outside the largest set of equal replicas (the first in a tie)
  std::vector<RankId> odd;
  RankId right{0};            ///< A rank of the largest set
  bool has_majority = false;  ///< More than half are equal
};

/// Borrows its arguments.
class ReplicaCheck {
 public:
  ReplicaCheck(const RankContext& self, const TrainedModel& model, DeviceProgress& progress);

  /// Compares the replicas after `step` (from 1), and repairs deviating ones if the job does so. All ranks call it.
  /// Throws FinalError on the deviating rank, and FinalElsewhereError on the others, if it cannot repair them.
  void compare(std::int64_t step);
  /// Compares unless there are hashes, if the job repairs replicas: the first update needs them.
  void ensure_hashes(std::int64_t step);
  /// Throws Error if the state of this rank has changed since the last update.
  void require_unchanged();
  /// Forgets the hashes: an update follows.
  void forget() { hashes_.clear(); }

 private:
  [[nodiscard]] StateHashes hash_state();
  void repair(const DeviatingStage& stage, std::int64_t step);

  const RankContext& self_;
  const TrainedModel& model_;
  DeviceProgress& progress_;
  std::vector<StageCopies> copies_;
  StateHashes hashes_;  // Since the last comparison; empty after an update
};

}  // namespace chimera
