#pragma once
// Compares the replicas of each stage to detect silent data corruption.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "train/setup/job.h"
#include "transport/transport.h"

namespace chimera {

/// Ranks that hold the same state after every step.
struct StageCopies {
  ParameterGroupId group;
  std::vector<RankId> ranks;
};

/// Returns every stage that several ranks hold. In asynchronous schedules, replicas are the same workers of different
/// groups.
[[nodiscard]] std::vector<StageCopies> stage_copies(const Job& job);

/// Calls during a hash of many tensors; may be empty.
struct HashHooks {
  std::function<void()> after_tensor = {};
  std::function<void()> before_wait = {};  ///< On a device, before the only wait for it
};

/// Returns XXH3 on the CPU, element_hash() on a device. Compare only hashes from the same kind of device.
[[nodiscard]] std::uint64_t hash_bytes(std::span<const at::Tensor> tensors, const HashHooks& hooks = {});

/// Returns a hash of all tensors in order, computed by tensor operations on their common device. It is equal on every
/// kind of device. Any change of a single element changes it.
[[nodiscard]] std::uint64_t element_hash(std::span<const at::Tensor> tensors, const HashHooks& hooks = {});

using StateHashes = std::map<ParameterGroupId, std::uint64_t>;

struct DeviatingStage {
  StageCopies copies;
  /// Ranks outside the largest set of equal replicas (the first in a tie)
  std::vector<RankId> odd;
  RankId right{0};            ///< A rank of the largest set
  bool has_majority = false;  ///< More than half are equal
};

/// Takes a small all-reduce. All ranks call it and get the same result. `own` holds all stages of `copies` on this
/// rank.
[[nodiscard]] std::vector<DeviatingStage> differing_stages(const std::vector<StageCopies>& copies,
                                                           const StateHashes& own, RankId rank, Transport& transport);

/// Returns one line about a difference after `step` (from 1).
[[nodiscard]] std::string describe(const DeviatingStage& stage, std::int64_t step);

}  // namespace chimera
