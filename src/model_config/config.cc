#include "model_config/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "core/error.h"
#include "core/nearest.h"
#include "model_config/parameters.h"

namespace chimera {
namespace {

constexpr std::int64_t kLargestSize = 1'000'000'000;
constexpr std::int64_t kMostLayers = 1'000'000;
constexpr double kMostParameters = 1e15;

// gpt2-32, gpt2-64 and bert-48 are the models of Li and Hoefler, SC'21.
std::vector<ModelConfig> gpt2_and_bert_presets() {
  constexpr auto kGpt2 = Family::Gpt2;
  constexpr auto kBert = Family::Bert;
  // The small ones read bytes; BERT adds PAD, CLS, SEP and MASK.
  return {
      // name      family layers hidden heads feed_forward vocabulary positions tied
      {"gpt2-tiny", kGpt2, 4, 64, 4, 256, 256, 1024, false},
      {"gpt2-mini", kGpt2, 8, 224, 7, 896, 256, 1024, false},
      {"gpt2", kGpt2, 12, 768, 12, 3072, 50'257, 1024, true},
      {"gpt2-32", kGpt2, 32, 1280, 20, 5120, 50'257, 1024, false},
      {"gpt2-64", kGpt2, 64, 1280, 20, 5120, 50'257, 1024, false},
      {"bert-tiny", kBert, 4, 64, 4, 256, 260, 512, false},
      {"bert-base", kBert, 12, 768, 12, 3072, 30'522, 512, false},
      {"bert-large", kBert, 24, 1024, 16, 4096, 30'522, 512, false},
      {"bert-48", kBert, 48, 1024, 16, 4096, 30'522, 512, false},
  };
}

// llama-tiny and llama-mini have about the weights of gpt2-tiny and gpt2-mini; the others are those of their makers.
std::vector<ModelConfig> llama_presets() {
  constexpr auto kLlama = Family::Llama;
  std::vector<ModelConfig> models = {
      // name      family layers hidden heads feed_forward vocabulary positions tied epsilon key_value_heads head_size
      {"llama-tiny", kLlama, 4, 64, 4, 192, 256, 1024, false, 1e-5, 2},
      {"llama-mini", kLlama, 8, 224, 7, 720, 256, 1024, false, 1e-5, 1},
      {"smollm2-135m", kLlama, 30, 576, 9, 1536, 49'152, 8192, true, 1e-5, 3},
      {"qwen3-0.6b", kLlama, 28, 1024, 16, 3072, 151'936, 40'960, true, 1e-6, 8, 128},
      {"llama-3.2-1b", kLlama, 16, 2048, 32, 8192, 128'256, 131'072, true, 1e-5, 8},
      {"llama-3-8b", kLlama, 32, 4096, 32, 14'336, 128'256, 8192, false, 1e-5, 8},
      {"mistral-7b", kLlama, 32, 4096, 32, 14'336, 32'000, 32'768, false, 1e-5, 8},
  };
  const auto model = [&](std::string_view name) -> ModelConfig& {
    return *std::ranges::find(models, name, &ModelConfig::name);
  };
  model("smollm2-135m").rope_theta = 1e5;
  model("qwen3-0.6b").rope_theta = 1e6;
  model("qwen3-0.6b").query_key_norm = true;
  for (const char* llama : {"llama-3.2-1b", "llama-3-8b"}) model(llama).rope_theta = 5e5;
  model("llama-3.2-1b").rope_scaling = {.type = RopeScalingType::Llama3, .factor = 32};
  model("mistral-7b").sliding_window = 4096;
  return models;
}

const std::vector<ModelConfig>& presets() {
  static const std::vector<ModelConfig> models = [] {
    std::vector<ModelConfig> all = gpt2_and_bert_presets();
    std::ranges::move(llama_presets(), std::back_inserter(all));
    return all;
  }();
  return models;
}

[[noreturn]] void refuse(const ModelConfig& config, std::string_view what) {
  throw ConfigError(fmt::format("model '{}': {}", config.name, what));
}

void check_size(const ModelConfig& config, std::string_view field, std::int64_t value, std::int64_t largest) {
  if (value >= 1 && value <= largest) return;
  refuse(config, fmt::format("{} is {}; must be from 1 to {}", field, value, largest));
}

/// NaN is in no range.
void check_number(const ModelConfig& config, std::string_view field, double value, double least, double largest) {
  if (value >= least && value <= largest) return;
  refuse(config, fmt::format("{} is {}; must be from {} to {}", field, value, least, largest));
}

/// Values that no other family has are an error, not ignored.
void check_that_llamas_fields_are_unused(const ModelConfig& config) {
  ModelConfig used = config;
  used.key_value_heads = used.head_size = used.sliding_window = {};
  const ModelConfig unused;
  used.rope_theta = unused.rope_theta;
  used.rope_scaling = unused.rope_scaling;
  used.attention_bias = unused.attention_bias;
  used.feed_forward_bias = used.query_key_norm = false;
  if (used != config) {
    refuse(config, fmt::format("key_value_heads, head_size, sliding_window, rope_theta, rope_scaling, attention_bias, "
                               "feed_forward_bias and query_key_norm belong to family 'llama', not '{}'",
                               to_text(config.family)));
  }
}

void check_rotary_positions(const ModelConfig& config) {
  constexpr double kMost = 1e12;
  const RopeScaling& scaling = config.rope_scaling;
  check_number(config, "rope_theta", config.rope_theta, 1, kMost);
  if (scaling.type == RopeScalingType::None) return;
  check_number(config, "the factor of rope_scaling", scaling.factor, 1, kMost);
  if (scaling.type == RopeScalingType::Linear) return;
  check_number(config, "low_frequency_factor", scaling.low_frequency_factor, 1e-6, kMost);
  check_number(config, "high_frequency_factor", scaling.high_frequency_factor, 1e-6, kMost);
  check_size(config, "original_positions", scaling.original_positions, kLargestSize);
  if (scaling.high_frequency_factor <= scaling.low_frequency_factor) {
    refuse(config, fmt::format("high_frequency_factor {} must be above low_frequency_factor {}",
                               scaling.high_frequency_factor, scaling.low_frequency_factor));
  }
}

void check_heads(const ModelConfig& config) {
  if (!config.head_size && config.hidden % config.heads != 0) {
    refuse(config,
           fmt::format("{} heads do not divide the hidden size {}; choose heads that do", config.heads, config.hidden));
  }
  if (config.family != Family::Llama) return check_that_llamas_fields_are_unused(config);
  const std::int64_t shared = key_value_heads_of(config);
  check_size(config, "key_value_heads", shared, kLargestSize);
  check_size(config, "head_size", head_size_of(config), kLargestSize);
  check_size(config, "heads times head_size", config.heads * head_size_of(config), kLargestSize);
  if (config.heads % shared != 0) {
    refuse(config, fmt::format("{} key_value_heads do not divide the {} heads; choose a number that does", shared,
                               config.heads));
  }
  if (head_size_of(config) % 2 != 0) {
    refuse(config, fmt::format("heads are {} wide; rotary positions need an even width", head_size_of(config)));
  }
  if (config.sliding_window) check_size(config, "sliding_window", *config.sliding_window, kLargestSize);
  check_rotary_positions(config);
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const ModelConfig& model : presets()) names.push_back(model.name);
  return names;
}

ModelConfig find_model(const std::string& name_or_file) {
  if (name_or_file.ends_with(".toml")) return read_model_file(name_or_file);
  const auto found = std::ranges::find(presets(), name_or_file, &ModelConfig::name);
  if (found == presets().end()) throw ConfigError(unknown_name("model", name_or_file, preset_names()));
  return *found;
}

ModelConfig with_overrides(ModelConfig config, const ModelOverrides& overrides) {
  config.layers = overrides.layers.value_or(config.layers);
  if (overrides.hidden) {
    check_size(config, "hidden", *overrides.hidden, kLargestSize);  // before the product
    config.hidden = *overrides.hidden;
    config.feed_forward = (config.family == Family::Llama ? 3 : 4) * config.hidden;
  }
  config.heads = overrides.heads.value_or(config.heads);
  if (overrides.key_value_heads) config.key_value_heads = overrides.key_value_heads;
  config.vocabulary = overrides.vocabulary.value_or(config.vocabulary);
  config.tied = overrides.tied.value_or(config.tied);
  require_valid(config);
  return config;
}

void require_valid(const ModelConfig& config) {
  check_size(config, "layers", config.layers, kMostLayers);
  check_size(config, "hidden", config.hidden, kLargestSize);
  check_size(config, "heads", config.heads, kLargestSize);
  check_size(config, "feed_forward", config.feed_forward, kLargestSize);
  check_size(config, "vocabulary", config.vocabulary, kLargestSize);
  check_size(config, "positions", config.positions, kLargestSize);
  check_number(config, "norm_epsilon", norm_epsilon_of(config), 1e-30, 1);
  check_heads(config);
  // In floating point, because the exact number may not fit into 64 bits; that of a single parameter always does.
  double parameters = 0;
  for (const ParameterSpec& spec : embedding_parameters(config)) parameters += static_cast<double>(spec.count());
  for (const ParameterSpec& spec : head_parameters(config)) parameters += static_cast<double>(spec.count());
  for (const ParameterSpec& spec : block_parameters(config, 0)) {
    parameters += static_cast<double>(spec.count()) * static_cast<double>(config.layers);
  }
  if (parameters > kMostParameters) {
    refuse(config, fmt::format("{:.3g} parameters are more than the {:.0e} that can be counted; choose smaller sizes",
                               parameters, kMostParameters));
  }
}

double norm_epsilon_of(const ModelConfig& config) {
  switch (config.family) {
    case Family::Gpt2: return config.norm_epsilon.value_or(1e-5);
    case Family::Bert: return config.norm_epsilon.value_or(1e-12);
    case Family::Llama: return config.norm_epsilon.value_or(1e-6);
  }
  return 0;
}

void require_no_sliding(const ModelConfig& config, std::int64_t sequence) {
  if (!config.sliding_window || sequence <= *config.sliding_window) return;
  refuse(config, fmt::format("a sequence of {0} tokens is longer than its sliding window of {1}, and windows below the "
                             "sequence are not supported; choose --sequence {1} or less",
                             sequence, *config.sliding_window));
}

}  // namespace chimera
