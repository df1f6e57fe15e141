#include "hugging_face/same_model.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "model_config/config_json.h"

namespace chimera {
namespace {

/// All that makes a model, what is left to its family included.
nlohmann::ordered_json sizes_of(ModelConfig model) {
  model.norm_epsilon = norm_epsilon_of(model);
  if (model.family == Family::Llama) {
    model.key_value_heads = key_value_heads_of(model);
    model.head_size = head_size_of(model);
  }
  nlohmann::ordered_json sizes = layer_sizes_json(model);
  sizes["layers"] = model.layers;
  return sizes;
}

}  // namespace

void require_no_contradiction(const ModelFolder& folder, const std::string& model, const ModelOverrides& overrides) {
  const ModelConfig& own = folder.model();
  const ModelConfig given = with_overrides(model.empty() ? own : find_model(model), overrides);
  const nlohmann::ordered_json ours = sizes_of(own);
  const nlohmann::ordered_json theirs = sizes_of(given);
  for (const auto& [field, value] : ours.items()) {
    const bool follows_hidden = field == "feed_forward" && model.empty();  // --hidden makes it anew
    if (theirs.value(field, nlohmann::ordered_json()) == value || follows_hidden) continue;
    throw ConfigError(
        fmt::format("{}: its model has {} {}, and the flags say {}; leave out the flags that describe the "
                    "model",
                    folder.path(), field, value.dump(), theirs.value(field, nlohmann::ordered_json()).dump()));
  }
}

}  // namespace chimera
