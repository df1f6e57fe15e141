#pragma once
// Whether the copies of a stage are still equal, bit by bit: a bit that flipped in memory, a faulty core or a sum that
// went wrong makes them differ, and nothing else would notice.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "train/setup/job.h"
#include "transport/transport.h"

namespace chimera {

/// Ranks that hold the same after every step.
struct StageCopies {
  ParameterGroupId group;
  std::vector<RankId> ranks;
};

/// Every stage that several ranks hold. Of an asynchronous schedule these are the ranks of several groups that do the
/// same at the same time.
[[nodiscard]] std::vector<StageCopies> stage_copies(const Job& job);

/// Throws ConfigError where a run has no copies that --on-different-copies repair could repair.
void require_repairable(const JobShape& job);

/// XXH3 (64 bits) of the bytes of all these tensors, one after the other.
[[nodiscard]] std::uint64_t hash_bytes(std::span<const at::Tensor> tensors);

/// What each rank has of each stage, as a hash.
using StateHashes = std::map<ParameterGroupId, std::uint64_t>;

/// A stage whose copies differ.
struct DifferingStage {
  StageCopies copies;
  std::vector<RankId> odd;    ///< whose copy is not the most frequent one; of equally frequent ones the first counts
  RankId right{0};            ///< that has the most frequent one
  bool has_majority = false;  ///< more than half of the copies are equal
};

/// Compares hashes by one small sum over all ranks, which all call it, and all get the same. `own`: of every stage of
/// `copies` that this rank holds.
[[nodiscard]] std::vector<DifferingStage> differing_stages(const std::vector<StageCopies>& copies,
                                                           const StateHashes& own, RankId rank, Transport& transport);

/// One line for people, of a stage that differs after a step, counted from 1.
[[nodiscard]] std::string describe(const DifferingStage& stage, std::int64_t step);

}  // namespace chimera
