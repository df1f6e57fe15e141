#pragma once
// Description of a run in its checkpoints, and comparison on resuming.

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "train/setup/job.h"

namespace chimera {

/// Returns the constant sections of Manifest::run: `model`, `optimizer`, `data`, `hyperparameters`, `layout`,
/// `tokenizer`, `versions` (docs/checkpoints.md).
[[nodiscard]] nlohmann::ordered_json run_record(const Job& job);

/// Differences between a checkpoint's run and the run that resumes it, each as `data.sequence: 128 there, 64 here`.
struct RunDifferences {
  std::vector<std::string> model;  ///< Model or optimizer: cannot resume
  std::vector<std::string> data;   ///< Data, mini-batch or seed: other samples
  std::vector<std::string> other;  ///< Hyperparameters or versions: other numbers
};
[[nodiscard]] RunDifferences differences(const nlohmann::ordered_json& there, const nlohmann::ordered_json& here);

}  // namespace chimera
