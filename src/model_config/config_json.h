#pragma once
// A model's sizes as JSON, as every file and report of this program has them.

#include <nlohmann/json.hpp>

#include "model_config/config.h"

namespace chimera {

/// The fields of a model file (model_config/config.h) but `layers`: `family`, `hidden`, `heads`, `feed_forward`,
/// `vocabulary`, `positions`, `tied`. They fix what one layer of each kind is.
[[nodiscard]] inline nlohmann::ordered_json layer_sizes_json(const ModelConfig& model) {
  return {{"family", to_text(model.family)},
          {"hidden", model.hidden},
          {"heads", model.heads},
          {"feed_forward", model.feed_forward},
          {"vocabulary", model.vocabulary},
          {"positions", model.positions},
          {"tied", model.tied}};
}

}  // namespace chimera
