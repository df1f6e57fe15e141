#pragma once

// Writes everything that another program needs to repeat a training run, for `chimera bench --export`: initial weights,
// the batches of all steps, and the hyperparameters. Benchmarks use it to compare the speed of Chimera and PyTorch on
// equal work, and tests to compare losses and gradients with PyTorch.

#include "train/setup/job.h"

namespace chimera {

/// Writes into `folder`, creating it if needed:
///   `weights.safetensors`  all initial parameters by name
///   `batches.safetensors`  `tokens` and `targets`, [steps, mini-batch, sequence] int64, samples in the step's order;
///                          BERT also `token_types` and `next_sentence` [steps, mini-batch]
///   `job.json`             model sizes, batch, optimizer, `learning_rates` [steps]
/// Throws ConfigError if the folder cannot be created or written.
void export_job(const Job& job, const std::string& folder);

}  // namespace chimera
