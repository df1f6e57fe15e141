#pragma once
// A small checkpoint of two ranks by default.

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/disk.h"

namespace chimera::testing {

inline constexpr int kSampleRanks = 2;

/// Saves a checkpoint of that step as a run does: each rank's weights and optimizer state, the commit, and the removal
/// of old checkpoints. The tensors' elements depend on the step. Passes on the disk's exceptions.
void save_sample(Disk& disk, const std::string& folder, std::int64_t step, const Retention& retention = {},
                 int ranks = kSampleRanks);

/// The elements of `rank-1.weight` at that step.
[[nodiscard]] std::vector<float> sample_elements(std::int64_t step);

}  // namespace chimera::testing
