#include "model_config/config.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/nearest.h"
#include "model_config/parameters.h"

namespace chimera {
namespace {

constexpr std::int64_t kLargestSize = 1'000'000'000;
constexpr std::int64_t kMostLayers = 1'000'000;
constexpr double kMostParameters = 1e15;

// gpt2-32, gpt2-64 and bert-48 are the models of Li and Hoefler, SC'21.
const std::vector<ModelConfig>& presets() {
  constexpr auto kGpt2 = Family::Gpt2;
  constexpr auto kBert = Family::Bert;
  // The small ones read bytes; BERT adds PAD, CLS, SEP and MASK.
  static const std::vector<ModelConfig> models = {
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
  return models;
}

void check_size(const ModelConfig& config, std::string_view field, std::int64_t value, std::int64_t largest) {
  if (value >= 1 && value <= largest) return;
  throw ConfigError(fmt::format("model '{}': {} is {}; must be from 1 to {}", config.name, field, value, largest));
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
    config.feed_forward = 4 * config.hidden;
  }
  config.heads = overrides.heads.value_or(config.heads);
  config.vocabulary = overrides.vocabulary.value_or(config.vocabulary);
  config.tied = overrides.tied.value_or(config.tied);
  validate(config);
  return config;
}

void validate(const ModelConfig& config) {
  check_size(config, "layers", config.layers, kMostLayers);
  check_size(config, "hidden", config.hidden, kLargestSize);
  check_size(config, "heads", config.heads, kLargestSize);
  check_size(config, "feed_forward", config.feed_forward, kLargestSize);
  check_size(config, "vocabulary", config.vocabulary, kLargestSize);
  check_size(config, "positions", config.positions, kLargestSize);
  if (config.hidden % config.heads != 0) {
    throw ConfigError(fmt::format("model '{}': {} heads do not divide the hidden size {}; choose heads that do",
                                  config.name, config.heads, config.hidden));
  }
  // In floating point, because the exact number may not fit into 64 bits; that of a single parameter always does.
  double parameters = 0;
  for (const ParameterSpec& spec : embedding_parameters(config)) parameters += static_cast<double>(spec.count());
  for (const ParameterSpec& spec : head_parameters(config)) parameters += static_cast<double>(spec.count());
  for (const ParameterSpec& spec : block_parameters(config, 0)) {
    parameters += static_cast<double>(spec.count()) * static_cast<double>(config.layers);
  }
  if (parameters > kMostParameters) {
    throw ConfigError(
        fmt::format("model '{}': {:.3g} parameters are more than the {:.0e} that can be counted; choose "
                    "smaller sizes",
                    config.name, parameters, kMostParameters));
  }
}

}  // namespace chimera
