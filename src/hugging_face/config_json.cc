#include "hugging_face/config_json.h"

#include <fmt/ranges.h>
#include <algorithm>
#include <limits>

#include "core/choices.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/mapped.h"
#include "core/printable.h"
#include "core/reject.h"

// Two tables describe the classes of transformers: kClasses has their defaults, fields_of() the names of the fields
// that differ between families. model_from_config_json() and read_*() read what is left, and refuse every setting that
// would make the model compute something else than Chimera does; a field that no function names does not matter.
// to_config_json() writes the other way, and reads its own result back as a check.

namespace chimera {
namespace {

using Json = nlohmann::ordered_json;

/// Returns a value as a user finds it in the file, cut to one line.
std::string shown_value(const Json& value) {
  constexpr std::size_t kLongest = 60;
  const std::string text = json_text(value, -1, JsonEncoding::Ascii);
  return text.size() > kLongest ? text.substr(0, kLongest) + " ..." : text;
}

/// Object of a config.json, which must outlive it. Throws ConfigError for a wrong type or an unsupported value.
class ConfigFields {
 public:
  ConfigFields(const Json& json, std::string source) : json_(json), source_(std::move(source)) {
    if (!json.is_object()) fail("must be an object");
  }

  [[noreturn]] void fail(const std::string& what) const { reject("{}: {}", source_, what); }

  [[nodiscard]] bool has(const char* name) const { return find(name) != nullptr; }
  /// Returns whether the field exists, even as null.
  [[nodiscard]] bool names(const char* name) const { return json_.contains(name); }
  [[nodiscard]] ConfigFields object(const char* name) const {
    return {json_.at(name), fmt::format("{}: {}", source_, name)};
  }
  [[nodiscard]] const Json& operator[](const char* name) const { return json_.at(name); }

  // `absent` is for a missing or null field.
  [[nodiscard]] std::int64_t integer(const char* name, std::int64_t absent) const {
    constexpr std::uint64_t kMax = std::numeric_limits<std::int64_t>::max();
    return read(name, absent, "a whole number", [](const Json& value) {
      // A larger unsigned number would become negative.
      return value.is_number_integer() && (!value.is_number_unsigned() || value.get<std::uint64_t>() <= kMax);
    });
  }
  [[nodiscard]] double number(const char* name, double absent) const {
    return read(name, absent, "a number", [](const Json& value) { return value.is_number(); });
  }
  [[nodiscard]] bool truth(const char* name, bool absent) const {
    return read(name, absent, "true or false", [](const Json& value) { return value.is_boolean(); });
  }
  [[nodiscard]] std::string text(const char* name, std::string absent) const {
    return read(name, std::move(absent), "a text", [](const Json& value) { return value.is_string(); });
  }

  /// Rejects every value except `supported`, the default.
  void require(const char* name, const Json& supported) const {
    const Json* const value = find(name);
    if (value != nullptr && *value != supported) refuse(name, "it has " + json_text(supported));
  }
  /// Rejects other texts; the first is the default.
  void require_one_of(const char* name, const std::vector<const char*>& supported) const {
    const std::string value = text(name, supported.front());
    const auto is_value = [&](const char* one) { return value == one; };
    if (std::ranges::none_of(supported, is_value)) refuse(name, fmt::format("it has {}", fmt::join(supported, ", ")));
  }
  /// Rejects the field unless it is null, false or empty.
  void require_absent(const char* name) const {
    const Json* const value = find(name);
    if (value == nullptr || (value->is_boolean() && !value->get<bool>())) return;
    if (value->is_structured() && value->empty()) return;
    refuse(name, "use transformers for such a model");
  }

 private:
  [[nodiscard]] const Json* find(const char* name) const {
    const auto found = json_.find(name);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  template <class Value, class Fits>
  [[nodiscard]] Value read(const char* name, Value absent, const char* expected, const Fits& fits) const {
    const Json* const value = find(name);
    if (value == nullptr) return absent;
    if (!fits(*value)) fail(fmt::format("{} must be {}, not {}", name, expected, shown_value(*value)));
    return value->template get<Value>();
  }
  [[noreturn]] void refuse(const char* name, const std::string& supported) const {
    fail(fmt::format("{} is {}, which Chimera does not have; {}", name, shown_value(json_.at(name)), supported));
  }

  const Json& json_;
  std::string source_;
};

/// Sizes that all classes have, in the order of ClassFields::sizes and KnownClass::defaults.
constexpr std::int64_t ModelConfig::*kSizes[] = {&ModelConfig::vocabulary, &ModelConfig::positions,
                                                 &ModelConfig::hidden,     &ModelConfig::layers,
                                                 &ModelConfig::heads,      &ModelConfig::feed_forward};
constexpr std::size_t kNumSizes = std::size(kSizes);

/// Names of the fields of a config.json that differ between families.
struct ClassFields {
  const char* activation;
  std::vector<const char*> activations;  // supported; the first is the default
  std::array<const char*, kNumSizes> sizes;
  const char* epsilon;
  std::vector<const char*> dropout_rates;
};
constexpr auto kUsualSizes =
    std::to_array<const char*>({"vocab_size", "max_position_embeddings", "hidden_size", "num_hidden_layers",
                                "num_attention_heads", "intermediate_size"});

const ClassFields& fields_of(Family family) {
  // gelu_new and gelu_pytorch_tanh are the same approximation by tanh.
  static const ClassFields gpt2 = {.activation = "activation_function",
                                   .activations = {"gelu_new", "gelu_pytorch_tanh"},
                                   .sizes = {"vocab_size", "n_positions", "n_embd", "n_layer", "n_head", "n_inner"},
                                   .epsilon = "layer_norm_epsilon",
                                   .dropout_rates = {"resid_pdrop", "embd_pdrop", "attn_pdrop"}};
  static const ClassFields bert = {.activation = "hidden_act",
                                   .activations = {"gelu"},
                                   .sizes = kUsualSizes,
                                   .epsilon = "layer_norm_eps",
                                   .dropout_rates = {"hidden_dropout_prob", "attention_probs_dropout_prob"}};
  // silu and swish are the same function. These classes have no dropout but in attention, which is 0 by default.
  static const ClassFields llama = {.activation = "hidden_act",
                                    .activations = {"silu", "swish"},
                                    .sizes = kUsualSizes,
                                    .epsilon = "rms_norm_eps",
                                    .dropout_rates = {}};
  return family == Family::Gpt2 ? gpt2 : family == Family::Bert ? bert : llama;
}

struct KnownClass {
  const char* model_type;
  const char* architecture;
  Family family;
  std::array<std::int64_t, kNumSizes> defaults;  // in transformers 5
  std::int64_t key_value_heads = 0;              // 0: as many as heads
  std::int64_t head_size = 0;                    // 0: from the hidden width
};
constexpr std::array<KnownClass, 6> kClasses = {{
    {"gpt2", "GPT2LMHeadModel", Family::Gpt2, {50'257, 1024, 768, 12, 12, 0}},
    {"bert", "BertForPreTraining", Family::Bert, {30'522, 512, 768, 12, 12, 3072}},
    {"llama", "LlamaForCausalLM", Family::Llama, {32'000, 2048, 4096, 32, 32, 11'008}},
    {"mistral", "MistralForCausalLM", Family::Llama, {32'000, 131'072, 4096, 32, 32, 14'336}, 8},
    {"qwen2", "Qwen2ForCausalLM", Family::Llama, {151'936, 32'768, 4096, 32, 32, 22'016}, 32},
    {"qwen3", "Qwen3ForCausalLM", Family::Llama, {151'936, 32'768, 4096, 32, 32, 22'016}, 32, 128},
}};

const KnownClass* find_class(std::string_view type) {
  const auto known = std::ranges::find(kClasses, type, &KnownClass::model_type);
  return known == kClasses.end() ? nullptr : &*known;
}

/// Names no nearest type: programs write this field, and a similar name (llama4, qwen2_vl) is another model.
[[noreturn]] void refuse_class(const ConfigFields& config, const std::string& type) {
  if (type.empty()) config.fail("has no model_type");
  const auto types = mapped<std::string>(kClasses, &KnownClass::model_type);
  // A model for images and text has the config of its language model inside its own.
  const std::string text = config.has("text_config") ? config.object("text_config").text("model_type", "") : "";
  const std::string remedy =
      find_class(text) != nullptr
          ? fmt::format("its language model is a {}: save that alone (save_pretrained of the language model)", text)
          : "train it in Python, where cp.layers_of() cuts models of transformers into layers";
  config.fail(fmt::format("model_type is '{}'; Chimera's own models are {}; {}", printable(type),
                          fmt::join(types, ", "), remedy));
}

const KnownClass& class_of(const ConfigFields& config) {
  const std::string type = config.text("model_type", "");
  const KnownClass* const known = find_class(type);
  if (known == nullptr) refuse_class(config, type);
  // A class for another task has other layers behind the last block, such as GPT2ForSequenceClassification.
  if (!config.has("architectures")) return *known;
  const Json& architectures = config["architectures"];
  if (architectures.is_array() && architectures.size() == 1 && architectures[0] == known->architecture) return *known;
  config.fail(fmt::format("architectures must be [\"{}\"] for model_type {}, not {}", known->architecture, type,
                          shown_value(architectures)));
}

void read_gpt2(const ConfigFields& config) {
  config.require("scale_attn_weights", true);
  config.require("scale_attn_by_inverse_layer_idx", false);
  config.require("reorder_and_upcast_attn", false);
}

void read_bert(const ConfigFields& config) {
  config.require_one_of("position_embedding_type", {"absolute"});
  if (config.integer("type_vocab_size", kTokenTypes) == kTokenTypes) return;
  config.fail(fmt::format("type_vocab_size is {}; Chimera trains on pairs of sentences, which need {}",
                          config.integer("type_vocab_size", 0), kTokenTypes));
}

void read_sizes(const ConfigFields& config, const KnownClass& known, ModelConfig& model) {
  const ClassFields& fields = fields_of(known.family);
  for (std::size_t i = 0; i < kNumSizes; ++i) {
    constexpr std::int64_t kWidest = 1'000'000'000;  // prevents overflow
    // GPT-2's n_inner is null by default: four times the hidden width.
    const bool follows_hidden = known.family == Family::Gpt2 && kSizes[i] == &ModelConfig::feed_forward;
    model.*kSizes[i] = config.integer(
        fields.sizes[i], follows_hidden ? 4 * std::clamp<std::int64_t>(model.hidden, 0, kWidest) : known.defaults[i]);
  }
  model.norm_epsilon = config.number(fields.epsilon, norm_epsilon_of(model));
  model.tied = config.truth("tie_word_embeddings", known.family != Family::Llama);
}

/// Reads the rule of rotary positions in the object `name`.
void read_rope_rule(const ConfigFields& config, const char* name, ModelConfig& model) {
  const ConfigFields rope = config.object(name);
  rope.require("partial_rotary_factor", 1);
  const char* const type = rope.has("rope_type") ? "rope_type" : "type";
  // As in Gemma 3, where each kind of layer has an object of its own.
  for (const Json& value : config[name])
    if (value.is_object()) rope.fail("has separate numbers for some layers; Chimera has one rule for all layers");
  rope.require_one_of(type, {"default", "linear", "llama3"});
  model.rope_theta = rope.number("rope_theta", model.rope_theta);
  const std::string rule = rope.text(type, "default");
  if (rule == "default") return;
  RopeScaling& scaling = model.rope_scaling;
  if (!rope.has("factor")) rope.fail(fmt::format("factor is missing; rope type {} needs it", rule));
  scaling.factor = rope.number("factor", 1);
  scaling.type = RopeScalingType::Linear;
  if (rule == "linear") return;
  scaling.type = RopeScalingType::Llama3;
  for (const char* field : {"low_freq_factor", "high_freq_factor"})
    if (!rope.has(field)) rope.fail(fmt::format("{} is missing; rope type llama3 needs it", field));
  scaling.low_frequency_factor = rope.number("low_freq_factor", 1);
  scaling.high_frequency_factor = rope.number("high_freq_factor", 1);
  // In some files the field is outside of the object.
  scaling.original_positions = config.integer("original_max_position_embeddings",
                                              rope.integer("original_max_position_embeddings", model.positions));
}

/// `rope_parameters` (version 5) or `rope_scaling` (version 4); rope_theta may be outside.
void read_rope(const ConfigFields& config, ModelConfig& model) {
  config.require("partial_rotary_factor", 1);
  config.require("rope_interleaved", false);
  model.rope_theta = config.number("rope_theta", model.rope_theta);
  // Version 5 writes rope_parameters, and some files carry both spellings: they must agree.
  ModelConfig older = model;
  if (config.has("rope_parameters")) read_rope_rule(config, "rope_parameters", model);
  if (!config.has("rope_scaling")) return;
  read_rope_rule(config, "rope_scaling", older);
  if (!config.has("rope_parameters")) model = older;
  const bool same_theta = !config.object("rope_scaling").has("rope_theta") || older.rope_theta == model.rope_theta;
  if (older.rope_scaling != model.rope_scaling || !same_theta)
    config.fail("rope_parameters and rope_scaling differ; leave one of them out");
}

/// Qwen: the window may apply to some layers only, but limits the sequence.
void read_window_of_layers(const ConfigFields& config, ModelConfig& model) {
  const bool slides =
      config.truth("use_sliding_window", false) && (config.has("sliding_window") || !config.names("sliding_window"));
  // Older files have no layer_types: the first max_window_layers layers attend to everything, and the others slide.
  bool some_layer_slides = config.integer("max_window_layers", 28) < model.layers;
  if (config.has("layer_types")) {
    some_layer_slides = false;
    for (const Json& type : config["layer_types"]) {
      if (type == "sliding_attention") {
        some_layer_slides = true;
      } else if (type != "full_attention") {
        config.fail(
            fmt::format("layer_types has {}; Chimera has full_attention and sliding_attention", shown_value(type)));
      }
    }
    if (some_layer_slides && !slides) config.fail("layer_types has sliding_attention, but no sliding_window is used");
  }
  if (slides && some_layer_slides) model.sliding_window = config.integer("sliding_window", 4096);
}

void read_window(const ConfigFields& config, std::string_view type, ModelConfig& model) {
  if (type.starts_with("qwen"))
    read_window_of_layers(config, model);
  else if (type == "mistral" && (config.has("sliding_window") || !config.names("sliding_window")))
    model.sliding_window = config.integer("sliding_window", 4096);
  const bool has_types = config.has("layer_types");
  const auto types = has_types ? static_cast<std::int64_t>(config["layer_types"].size()) : model.layers;
  if (types != model.layers) config.fail(fmt::format("layer_types has {} entries for {} layers", types, model.layers));
}

AttentionBias attention_bias_of(const ConfigFields& config, std::string_view type) {
  // Qwen 2 and Mistral have no field for it: the class decides.
  if (type == "qwen2") return AttentionBias::QueryKeyValue;
  if (type == "mistral") return AttentionBias::None;
  return config.truth("attention_bias", false) ? AttentionBias::All : AttentionBias::None;
}

void read_llama(const ConfigFields& config, const KnownClass& known, ModelConfig& model) {
  const std::string_view type = known.model_type;
  // Null means all heads, a missing field the class's default.
  const bool as_heads = config.names("num_key_value_heads") || known.key_value_heads == 0;
  model.key_value_heads = config.integer("num_key_value_heads", as_heads ? model.heads : known.key_value_heads);
  if (config.has("head_dim") || (!config.names("head_dim") && known.head_size > 0))
    model.head_size = config.integer("head_dim", known.head_size);
  model.attention_bias = attention_bias_of(config, type);
  model.feed_forward_bias = type == "llama" && config.truth("mlp_bias", false);
  model.query_key_norm = type == "qwen3";
  read_rope(config, model);
  read_window(config, type, model);
}

// Names of torch's types, as the field `dtype` has them.
constexpr std::array<Named<ElementType>, 4> kElementWords = {{{ElementType::F32, "float32"},
                                                              {ElementType::F64, "float64"},
                                                              {ElementType::BF16, "bfloat16"},
                                                              {ElementType::F16, "float16"}}};

const char* word_of(ElementType type) {
  const auto known = std::ranges::find(kElementWords, type, &Named<ElementType>::value);
  if (known == kElementWords.end()) throw Error("config.json has no name for tensors of " + to_text(type));
  return known->name;
}

const KnownClass& class_for(const ModelConfig& model) {
  // GPT-2 and BERT have one class each.
  if (model.family != Family::Llama) return *std::ranges::find(kClasses, model.family, &KnownClass::family);
  // Only Qwen 3 normalizes queries and keys, and only Qwen 2 has these biases; a window alone makes it Mistral.
  const char* type = "llama";
  if (model.query_key_norm) type = "qwen3";
  if (model.sliding_window) type = model.query_key_norm ? "qwen3" : "mistral";
  if (model.attention_bias == AttentionBias::QueryKeyValue) type = "qwen2";
  return *find_class(type);
}

Json rope_json(const ModelConfig& model) {
  const RopeScaling& scaling = model.rope_scaling;
  Json rope = {{"rope_theta", model.rope_theta}, {"rope_type", "default"}};
  if (scaling.type == RopeScalingType::None) return rope;
  rope["rope_type"] = to_text(scaling.type);
  rope["factor"] = scaling.factor;
  if (scaling.type == RopeScalingType::Linear) return rope;
  rope["low_freq_factor"] = scaling.low_frequency_factor;
  rope["high_freq_factor"] = scaling.high_frequency_factor;
  rope["original_max_position_embeddings"] = scaling.original_positions;
  return rope;
}

void add_llama(const ModelConfig& model, std::string_view type, Json& json) {
  json["num_key_value_heads"] = key_value_heads_of(model);
  json["head_dim"] = head_size_of(model);
  json["rope_parameters"] = rope_json(model);
  // Only fields that the class has, because it would ignore others.
  if (type == "llama") json["mlp_bias"] = model.feed_forward_bias;
  if (type == "llama" || type == "qwen3") json["attention_bias"] = model.attention_bias == AttentionBias::All;
  if (type != "llama") json["sliding_window"] = model.sliding_window ? Json(*model.sliding_window) : Json();
  // From the first layer on, since Chimera has one window for all layers.
  if (type.starts_with("qwen") && model.sliding_window) {
    json["use_sliding_window"] = true;
    json["max_window_layers"] = 0;
  }
}

}  // namespace

std::vector<std::string> element_type_names() { return mapped<std::string>(kElementWords, &Named<ElementType>::name); }

ElementType element_type_of_word(const std::string& what, const std::string& word) {
  const auto known = std::ranges::find(kElementWords, std::string_view(word), &Named<ElementType>::name);
  if (known == kElementWords.end()) throw ConfigError(unknown_name(what, word, element_type_names()));
  return known->value;
}

ModelConfig model_from_config_json(const std::string& text, const std::string& source, const std::string& name) {
  (void)parse_json(text, source);  // rejects duplicate fields
  const Json json = read_ordered_json(text);
  const ConfigFields config(json, source);
  const KnownClass& known = class_of(config);
  // Each of these fields makes another model of the same class: quantized weights, code of its own, or a decoder that
  // also attends to an encoder.
  for (const char* field :
       {"quantization_config", "auto_map", "is_encoder_decoder", "add_cross_attention", "is_decoder", "pruned_heads"})
    config.require_absent(field);
  ModelConfig model{.name = name, .family = known.family};
  config.require_one_of(fields_of(known.family).activation, fields_of(known.family).activations);
  if (known.family == Family::Gpt2) read_gpt2(config);
  if (known.family == Family::Bert) read_bert(config);
  read_sizes(config, known, model);
  if (known.family == Family::Llama) read_llama(config, known, model);
  try {
    require_valid(model);
  } catch (const ConfigError& error) {
    reject("{}: {}", source, error.what());
  }
  return model;
}

std::string to_config_json(const ModelConfig& model, ElementType type) {
  const KnownClass& known = class_for(model);
  Json json = {
      {"architectures", {known.architecture}}, {"model_type", known.model_type},    {"dtype", word_of(type)},
      {"vocab_size", model.vocabulary},        {"tie_word_embeddings", model.tied}, {"initializer_range", 0.02}};
  const ClassFields& fields = fields_of(model.family);
  json[fields.activation] = fields.activations.front();
  // The vocabulary, at 0, is written above in its usual place.
  for (std::size_t i = 1; i < kNumSizes; ++i) json[fields.sizes[i]] = model.*kSizes[i];
  json[fields.epsilon] = norm_epsilon_of(model);
  if (model.family == Family::Bert) json["type_vocab_size"] = kTokenTypes;
  if (model.family == Family::Llama) add_llama(model, known.model_type, json);
  for (const char* rate : fields.dropout_rates) json[rate] = 0.0;
  // Otherwise the class's default ids apply, which may exceed this vocabulary.
  for (const char* token : {"bos_token_id", "eos_token_id", "pad_token_id"}) json[token] = nullptr;
  // Reading back is the check that no feature was dropped: each class has its own subset of the fields.
  ModelConfig read_back = model_from_config_json(json_text(json), kConfigName, model.name);
  read_back.norm_epsilon = model.norm_epsilon;  // written even if it is the default
  read_back.key_value_heads = model.key_value_heads;
  read_back.head_size = model.head_size;
  if (read_back != model) {
    reject(
        "model '{}' mixes features of several classes of transformers, none of which has them all; it cannot be "
        "exported",
        model.name);
  }
  return json_text(json, 2) + "\n";
}

std::string with_element_type(const std::string& config_json, ElementType type) {
  Json json = read_ordered_json(config_json);
  // The name of the field in version 4.
  json.erase("torch_dtype");
  json["dtype"] = word_of(type);
  return json_text(json, 2) + "\n";
}

}  // namespace chimera
