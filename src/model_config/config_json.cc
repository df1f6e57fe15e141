#include "model_config/config_json.h"

namespace chimera {
namespace {

nlohmann::ordered_json rope_scaling_json(const RopeScaling& scaling) {
  nlohmann::ordered_json json = {{"type", to_text(scaling.type)}};
  if (scaling.type != RopeScalingType::None) json["factor"] = scaling.factor;
  if (scaling.type == RopeScalingType::Llama3) {
    json["low_frequency_factor"] = scaling.low_frequency_factor;
    json["high_frequency_factor"] = scaling.high_frequency_factor;
    json["original_positions"] = scaling.original_positions;
  }
  return json;
}

}  // namespace

nlohmann::ordered_json layer_sizes_json(const ModelConfig& model) {
  nlohmann::ordered_json json = {{"family", to_text(model.family)},
                                 {"hidden", model.hidden},
                                 {"heads", model.heads},
                                 {"feed_forward", model.feed_forward},
                                 {"vocabulary", model.vocabulary},
                                 {"positions", model.positions},
                                 {"tied", model.tied}};
  if (model.norm_epsilon) json["norm_epsilon"] = *model.norm_epsilon;
  if (model.family != Family::Llama) return json;
  json["norm_epsilon"] = norm_epsilon_of(model);
  json["key_value_heads"] = key_value_heads_of(model);
  json["head_size"] = head_size_of(model);
  if (model.sliding_window) json["sliding_window"] = *model.sliding_window;
  json["rope_theta"] = model.rope_theta;
  json["rope_scaling"] = rope_scaling_json(model.rope_scaling);
  json["attention_bias"] = to_text(model.attention_bias);
  json["feed_forward_bias"] = model.feed_forward_bias;
  json["query_key_norm"] = model.query_key_norm;
  return json;
}

}  // namespace chimera
