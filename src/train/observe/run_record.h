#pragma once
// What a checkpoint says of the run that saved it, and what a run that goes on from it must have in common with it.

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "train/setup/job.h"

namespace chimera {

/// The sections of Manifest::run that a job fixes: `model`, `optimizer`, `data`, `hyperparameters`, `layout`,
/// `tokenizer`, `versions` (docs/checkpoint_format.md).
[[nodiscard]] nlohmann::ordered_json run_record(const Job& job);

/// What differs between a run and the one that goes on from it, each as `data.sequence: 128 there, 64 here`.
struct RunDifferences {
  std::vector<std::string> model;  ///< and optimizer: nothing can go on
  std::vector<std::string> data;   ///< or mini-batch, seed: other samples
  std::vector<std::string> other;  ///< hyperparameters and versions: other numbers
};
[[nodiscard]] RunDifferences differences(const nlohmann::ordered_json& there, const nlohmann::ordered_json& here);

}  // namespace chimera
