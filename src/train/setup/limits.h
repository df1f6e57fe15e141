#pragma once
// What a model and this machine have room for, found out before anything is allocated.

#include <cstdint>
#include <string>

#include "model_config/config.h"

namespace chimera {

/// Throws ConfigError where the sequence (--sequence) is longer than the model's positions or its sliding window, or
/// where no machine holds the hidden states of a micro-batch of so many sequences (--micro-batch-size).
void require_fitting_batch(const ModelConfig& model, std::int64_t sequence, std::int64_t micro_batch_size);

/// Throws ConfigError where this machine, or its control group, has less memory than `bytes`, which `what` of the model
/// (such as "weights") needs in any case.
void require_memory_for(const ModelConfig& model, const std::string& what, double bytes);

}  // namespace chimera
