#pragma once
// A model's sizes as JSON, as every file and report of this program has them.

#include <nlohmann/json.hpp>

#include "model_config/config.h"

namespace chimera {

/// The fields of a model file (model_config/config.h) but `layers`: `family`, `hidden`, `heads`, `feed_forward`,
/// `vocabulary`, `positions`, `tied`; of Llama all others too but a missing `sliding_window`. They fix what one layer
/// of each kind is.
[[nodiscard]] nlohmann::ordered_json layer_sizes_json(const ModelConfig& model);

}  // namespace chimera
