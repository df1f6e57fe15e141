#pragma once
// A training run for other programs: its first weights and all its batches as files, so that they can repeat it.

#include <string>

#include "train/setup/job.h"

namespace chimera {

/// Writes into `folder` (made where it is missing):
///   `weights.safetensors`  all parameters before the first step, by name, as train would start from
///   `batches.safetensors`  `tokens` and `targets`, [steps, mini-batch, sequence] int64, samples in the step's order;
///                          BERT also `token_types` and `next_sentence` [steps, mini-batch]
///   `job.json`             the model's sizes, and what training depends on: batch, optimizer, `learning_rates` [steps]
/// Throws ConfigError where the folder cannot be made or written.
void export_job(const Job& job, const std::string& folder);

}  // namespace chimera
