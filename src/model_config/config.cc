#include "model_config/config.h"

#include <fmt/ranges.h>
#include <toml++/toml.h>
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <type_traits>

#include "core/choices.h"
#include "core/files.h"
#include "core/json_fields.h"
#include "core/mapped.h"
#include "core/printable.h"
#include "core/reject.h"
#include "model_config/parameters.h"

// A model file is read and written by visitors: for_common_fields() and its kind name each field once with its member,
// and the functions below pass them a reader (Fields), a writer (write()) or a collector of names.

namespace chimera {
namespace {

// A matrix has at most three times the product of two sizes (GPT-2's queries, keys and values), which fits in 64 bits.
constexpr std::int64_t kLargestSize = 1'000'000'000;
constexpr std::int64_t kMaxLayers = 1'000'000;
constexpr double kMaxParameters = 1e15;

// gpt2-32, gpt2-64 and bert-48 are the models of Li and Hoefler, SC'21. tiny and mini models read bytes (BERT adds PAD,
// CLS, SEP and MASK); those of Llama have about as many parameters as those of GPT-2. The others are as published.
std::vector<ModelConfig> make_presets() {
  using enum Family;
  std::vector<ModelConfig> models = {
      // name family layers hidden heads feed_forward vocabulary positions tied epsilon key_value_heads head_size
      {"gpt2-tiny", Gpt2, 4, 64, 4, 256, 256, 1024, false},
      {"gpt2-mini", Gpt2, 8, 224, 7, 896, 256, 1024, false},
      {"gpt2", Gpt2, 12, 768, 12, 3072, 50'257, 1024, true},
      {"gpt2-32", Gpt2, 32, 1280, 20, 5120, 50'257, 1024, false},
      {"gpt2-64", Gpt2, 64, 1280, 20, 5120, 50'257, 1024, false},
      {"bert-tiny", Bert, 4, 64, 4, 256, 260, 512, false},
      {"bert-base", Bert, 12, 768, 12, 3072, 30'522, 512, false},
      {"bert-large", Bert, 24, 1024, 16, 4096, 30'522, 512, false},
      {"bert-48", Bert, 48, 1024, 16, 4096, 30'522, 512, false},
      {"llama-tiny", Llama, 4, 64, 4, 192, 256, 1024, false, 1e-5, 2},
      {"llama-mini", Llama, 8, 224, 7, 720, 256, 1024, false, 1e-5, 1},
      {"smollm2-135m", Llama, 30, 576, 9, 1536, 49'152, 8192, true, 1e-5, 3},
      {"qwen3-0.6b", Llama, 28, 1024, 16, 3072, 151'936, 40'960, true, 1e-6, 8, 128},
      {"llama-3.2-1b", Llama, 16, 2048, 32, 8192, 128'256, 131'072, true, 1e-5, 8},
      {"llama-2-7b", Llama, 32, 4096, 32, 11'008, 32'000, 4096, false, 1e-5},
      {"llama-2-13b", Llama, 40, 5120, 40, 13'824, 32'000, 4096, false, 1e-5},
      {"llama-3-8b", Llama, 32, 4096, 32, 14'336, 128'256, 8192, false, 1e-5, 8},
      {"llama-3-70b", Llama, 80, 8192, 64, 28'672, 128'256, 8192, false, 1e-5, 8},
      {"mistral-7b", Llama, 32, 4096, 32, 14'336, 32'000, 32'768, false, 1e-5, 8},
  };
  const auto model = [&](std::string_view name) -> ModelConfig& {
    return *std::ranges::find(models, name, &ModelConfig::name);
  };
  model("smollm2-135m").rope_theta = 1e5;
  model("qwen3-0.6b").rope_theta = 1e6;
  model("qwen3-0.6b").query_key_norm = true;
  for (const char* llama : {"llama-3.2-1b", "llama-3-8b", "llama-3-70b"}) model(llama).rope_theta = 5e5;
  model("llama-3.2-1b").rope_scaling = {.type = RopeScalingType::Llama3, .factor = 32};
  model("mistral-7b").sliding_window = 4096;
  return models;
}

const std::vector<ModelConfig>& presets() {
  static const std::vector<ModelConfig> models = make_presets();
  return models;
}

[[noreturn]] void refuse(const ModelConfig& config, std::string_view what) {
  reject("model '{}': {}", config.name, what);
}

void check_size(const ModelConfig& config, std::string_view field, std::int64_t value, std::int64_t largest) {
  if (value >= 1 && value <= largest) return;
  refuse(config, fmt::format("{} is {}; must be from 1 to {}", field, value, largest));
}

/// Rejects NaN too.
void check_number(const ModelConfig& config, std::string_view field, double value, double least, double largest) {
  if (value >= least && value <= largest) return;
  refuse(config, fmt::format("{} is {}; must be from {} to {}", field, value, least, largest));
}

// The functions below call visit(name, member) for each field of a model file, in the order of the file. Reading,
// writing and checking go through them, so that a field is named once.

template <class Visit>
void for_common_fields(const Visit& visit) {
  visit("family", &ModelConfig::family);
  visit("layers", &ModelConfig::layers);
  visit("hidden", &ModelConfig::hidden);
  visit("heads", &ModelConfig::heads);
  visit("feed_forward", &ModelConfig::feed_forward);
  visit("vocabulary", &ModelConfig::vocabulary);
  visit("positions", &ModelConfig::positions);
  visit("tied", &ModelConfig::tied);
  visit("norm_epsilon", &ModelConfig::norm_epsilon);
}

template <class Visit>
void for_llamas_fields(const Visit& visit) {
  visit("key_value_heads", &ModelConfig::key_value_heads);
  visit("head_size", &ModelConfig::head_size);
  visit("sliding_window", &ModelConfig::sliding_window);
  visit("rope_theta", &ModelConfig::rope_theta);
  visit("rope_scaling", &ModelConfig::rope_scaling);
  visit("attention_bias", &ModelConfig::attention_bias);
  visit("feed_forward_bias", &ModelConfig::feed_forward_bias);
  visit("query_key_norm", &ModelConfig::query_key_norm);
}

template <class Visit>
void for_rope_fields(RopeScalingType type, const Visit& visit) {
  visit("type", &RopeScaling::type);
  if (type != RopeScalingType::None) visit("factor", &RopeScaling::factor);
  if (type != RopeScalingType::Llama3) return;
  visit("low_frequency_factor", &RopeScaling::low_frequency_factor);
  visit("high_frequency_factor", &RopeScaling::high_frequency_factor);
  visit("original_positions", &RopeScaling::original_positions);
}

/// Visitor that collects the names.
void check_that_llamas_fields_are_unused(const ModelConfig& config) {
  const ModelConfig unused;
  // Collected for the message, which names all fields that a model of another family must not have.
  std::vector<std::string> names;
  bool is_unused = true;
  for_llamas_fields([&](const char* name, auto member) {
    names.emplace_back(name);
    is_unused = is_unused && config.*member == unused.*member;
  });
  if (is_unused) return;
  refuse(config, fmt::format("{} belong to family 'llama', not '{}'", fmt::join(names, ", "), to_text(config.family)));
}

void check_rotary_positions(const ModelConfig& config) {
  constexpr double kMax = 1e12;
  const RopeScaling& scaling = config.rope_scaling;
  check_number(config, "rope_theta", config.rope_theta, 1, kMax);
  if (scaling.type == RopeScalingType::None) return;
  check_number(config, "the factor of rope_scaling", scaling.factor, 1, kMax);
  if (scaling.type == RopeScalingType::Linear) return;
  check_number(config, "low_frequency_factor", scaling.low_frequency_factor, 1e-6, kMax);
  check_number(config, "high_frequency_factor", scaling.high_frequency_factor, 1e-6, kMax);
  check_size(config, "original_positions", scaling.original_positions, kLargestSize);
  if (scaling.high_frequency_factor <= scaling.low_frequency_factor)
    refuse(config, fmt::format("high_frequency_factor {} must be above low_frequency_factor {}",
                               scaling.high_frequency_factor, scaling.low_frequency_factor));
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
  if (head_size_of(config) % 2 != 0)
    refuse(config, fmt::format("heads are {} wide; rotary positions need an even width", head_size_of(config)));
  if (config.sliding_window) check_size(config, "sliding_window", *config.sliding_window, kLargestSize);
  check_rotary_positions(config);
}

toml::table parse(const std::string& text, const std::string& path) {
  try {
    return toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    reject("{}:{}: {}", path, error.source().begin.line, printable(error.description(), kParserMessage));
  }
}

/// Returns the table as JSON, so that a ModelConfig has one reader. Dates and arrays, which no field has, become null.
nlohmann::json json_of(const toml::table& table) {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [key, node] : table) {
    nlohmann::json& value = json[std::string(key.str())];
    if (const auto* inner = node.as_table()) value = json_of(*inner);
    if (const auto* text = node.as_string()) value = text->get();
    if (const auto* number = node.as_integer()) value = number->get();
    if (const auto* number = node.as_floating_point()) value = number->get();
    if (const auto* truth = node.as_boolean()) value = truth->get();
  }
  return json;
}

void visit_rope_scaling(JsonFields& json, RopeScaling& scaling) {
  // The type decides which other fields there are.
  json.field("type", scaling.type);
  for_rope_fields(scaling.type, [&](const char* name, auto member) { json.field(name, scaling.*member); });
}

/// Visits the fields whose names `is_wanted` accepts. The family decides which fields there are.
template <class IsWanted>
void visit_fields(JsonFields& json, ModelConfig& model, const IsWanted& is_wanted) {
  const auto visit = [&](const char* name, auto member) {
    auto& value = model.*member;
    if constexpr (std::is_same_v<decltype(value), RopeScaling&>)
      json.object(name, value, visit_rope_scaling);
    else if (is_wanted(name))
      json.field(name, value);
  };
  for_common_fields(visit);
  if (model.family != Family::Llama) return;
  for_llamas_fields([&](const char* name, auto member) {
    if (json.has(name, true)) visit(name, member);
  });
}

void visit_model_file(JsonFields& json, ModelConfig& model) {
  visit_fields(json, model, [](std::string_view) { return true; });
}

}  // namespace

std::vector<std::string> preset_names() { return mapped<std::string>(presets(), &ModelConfig::name); }

std::string hub_download(const std::string& name, bool may_lack_owner) {
  const auto slash = name.find('/');
  const auto is_word = [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.'; };
  // At most one slash, and no path such as ./a/b. `owner/model`. Names without an owner are old models such as `gpt2`;
  // without `may_lack_owner` they look like misspelled presets.
  const bool has_owner = slash != std::string::npos && slash > 0 && slash + 1 < name.size() &&
                         !std::filesystem::exists(name.substr(0, slash));
  const bool is_name = (has_owner || (may_lack_owner && slash == std::string::npos)) && !name.empty() &&
                       name.front() != '.' && std::ranges::all_of(name.substr(0, slash), is_word) &&
                       std::ranges::all_of(name.substr(slash + 1), is_word);
  if (!is_name) return "";
  return fmt::format("download it with `hf download {} --local-dir {}` and give that folder", name,
                     name.substr(slash + 1));
}

ModelConfig find_model(const std::string& name_or_file) {
  if (name_or_file.ends_with(".toml")) return read_model_file(name_or_file);
  const auto found = std::ranges::find(presets(), name_or_file, &ModelConfig::name);
  if (found != presets().end()) return *found;
  if (const std::string download = hub_download(name_or_file); !download.empty())
    reject("{} is neither a folder nor a preset; {}", printable(name_or_file), download);
  throw ConfigError(unknown_name("model", name_or_file, preset_names()));
}

ModelConfig with_overrides(ModelConfig config, const ModelOverrides& overrides) {
  config.layers = overrides.layers.value_or(config.layers);
  if (overrides.hidden) {
    // feed_forward follows --hidden, with the factor of the published models.
    check_size(config, "hidden", *overrides.hidden, kLargestSize);  // prevents overflow
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
  check_size(config, "layers", config.layers, kMaxLayers);
  check_size(config, "hidden", config.hidden, kLargestSize);
  check_size(config, "heads", config.heads, kLargestSize);
  check_size(config, "feed_forward", config.feed_forward, kLargestSize);
  check_size(config, "vocabulary", config.vocabulary, kLargestSize);
  check_size(config, "positions", config.positions, kLargestSize);
  check_number(config, "norm_epsilon", norm_epsilon_of(config), 1e-30, 1);
  check_heads(config);
  // Floating point, because the total may not fit into 64 bits; one parameter always does.
  double parameters = 0;
  for (const ParameterSpec& spec : embedding_parameters(config)) parameters += static_cast<double>(spec.count());
  for (const ParameterSpec& spec : head_parameters(config)) parameters += static_cast<double>(spec.count());
  for (const ParameterSpec& spec : block_parameters(config, 0))
    parameters += static_cast<double>(spec.count()) * static_cast<double>(config.layers);
  if (parameters > kMaxParameters) {
    refuse(config, fmt::format("{:.3g} parameters are more than the {:.0e} that can be counted; choose smaller sizes",
                               parameters, kMaxParameters));
  }
}

void require_within_window(const ModelConfig& config, std::int64_t sequence) {
  if (!config.sliding_window || sequence <= *config.sliding_window) return;
  refuse(config, fmt::format("a sequence of {0} tokens is longer than its sliding window of {1}, and windows below the "
                             "sequence are not supported; choose --sequence {1} or less",
                             sequence, *config.sliding_window));
}

ModelConfig model_from_toml(const std::string& text, const std::string& path) {
  const nlohmann::json json = json_of(parse(text, path));
  ModelConfig config{.name = std::filesystem::path(path).stem().string()};
  JsonFields::read(JsonValue(json, path), config, visit_model_file);
  // require_valid() knows no file, so the path is added here.
  try {
    require_valid(config);
  } catch (const ConfigError& error) {
    reject("{}: {}", path, error.what());
  }
  return config;
}

ModelConfig read_model_file(const std::string& path) {
  // The limit catches a path to weights instead of a model file before gigabytes are read.
  constexpr std::size_t kLargestFile = 1 << 20;
  return model_from_toml(read_whole(path, kLargestFile), path);
}

void visit_layer_sizes(JsonFields& json, ModelConfig& model) {
  if (!json.reads() && model.family == Family::Llama) {
    // Written out, so that an unset field and its default given explicitly have the same text.
    model.norm_epsilon = norm_epsilon_of(model);
    model.key_value_heads = key_value_heads_of(model);
    model.head_size = head_size_of(model);
  }
  visit_fields(json, model, [](std::string_view name) { return name != "layers"; });
}

nlohmann::ordered_json layer_sizes_json(ModelConfig model) { return JsonFields::written(model, visit_layer_sizes); }

}  // namespace chimera
