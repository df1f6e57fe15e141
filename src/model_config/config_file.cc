// The one source that includes the TOML parser.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <type_traits>

#include "core/error.h"
#include "core/names.h"
#include "core/nearest.h"
#include "core/printable.h"
#include "model_config/config.h"

namespace chimera {
namespace {

using Names = std::vector<std::string>;

const Names& field_names(Family family) {
  static const Names of_all = {"family",     "layers",    "hidden", "heads",       "feed_forward",
                               "vocabulary", "positions", "tied",   "norm_epsilon"};
  static const Names of_llama = [] {
    Names names = of_all;
    for (const char* name : {"key_value_heads", "head_size", "sliding_window", "rope_theta", "rope_scaling",
                             "attention_bias", "feed_forward_bias", "query_key_norm"})
      names.emplace_back(name);
    return names;
  }();
  return family == Family::Llama ? of_llama : of_all;
}

const Names& field_names(RopeScalingType type) {
  static const Names of_none = {"type"};
  static const Names of_linear = {"type", "factor"};
  static const Names of_llama3 = {"type", "factor", "low_frequency_factor", "high_frequency_factor",
                                  "original_positions"};
  if (type == RopeScalingType::None) return of_none;
  return type == RopeScalingType::Linear ? of_linear : of_llama3;
}

std::string read_text(const std::string& path) {
  constexpr std::uintmax_t kLargestFile = 1 << 20;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    throw ConfigError(fmt::format("cannot read model file '{}': no such file", path));
  }
  if (std::filesystem::file_size(path, error) > kLargestFile || error) {
    throw ConfigError(fmt::format("model file '{}' is larger than 1 MiB; expected a few lines of TOML", path));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) throw ConfigError(fmt::format("cannot read model file '{}': check its permissions", path));
  return {std::istreambuf_iterator<char>(file), {}};
}

toml::table parse(const std::string& text, const std::string& path) {
  try {
    return toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    throw ConfigError(
        fmt::format("{}:{}: {}", path, error.source().begin.line, printable(error.description(), kParserMessage)));
  }
}

/// The fields of one table, read with messages that say where.
class Fields {
 public:
  Fields(std::string path, const toml::table& table) : path_(std::move(path)), table_(table) {}

  /// Refuses every other field.
  void expect(const Names& names) const {
    for (const auto& [key, value] : table_) {
      if (std::ranges::count(names, key.str()) == 0) fail(value, unknown_name("field", key, names));
    }
  }

  [[nodiscard]] bool has(std::string_view field) const { return table_.contains(field); }

  /// The field, or an error where it is missing or of another type; integers are numbers too.
  template <class Type>
  [[nodiscard]] Type get(std::string_view field) const {
    const toml::node& node = required(field, expected<Type>());
    const auto value = std::is_same_v<Type, double> ? node.value<Type>() : node.value_exact<Type>();
    if (!value) fail(node, fmt::format("field '{}' must be {}", field, expected<Type>()));
    return *value;
  }

  [[nodiscard]] std::int64_t size(std::string_view field) const { return get<std::int64_t>(field); }

  /// Replaces `value` where the field is there.
  template <class Type>
  void get_if_there(std::string_view field, Type& value) const {
    if (has(field)) value = get<Type>(field);
  }
  template <class Type>
  void get_if_there(std::string_view field, std::optional<Type>& value) const {
    if (has(field)) value = get<Type>(field);
  }

  /// What the field names.
  template <NamedEnum Enum>
  [[nodiscard]] Enum choice(std::string_view field) const {
    const std::string expected = fmt::format("\"{}\"", fmt::join(names_of<Enum>(), "\" or \""));
    const toml::node& node = required(field, expected);
    const auto name = node.value_exact<std::string>();
    if (!name) fail(node, fmt::format("field '{}' must be {}", field, expected));
    if (const auto value = find_named<Enum>(*name)) return *value;
    fail(node, unknown_name(field, *name, names_of<Enum>()));
  }

  [[nodiscard]] Fields table(std::string_view field) const {
    const toml::node& node = required(field, "a table");
    if (!node.is_table()) fail(node, fmt::format("field '{}' must be a table", field));
    return {path_, *node.as_table()};
  }

 private:
  template <class Type>
  static constexpr std::string_view expected() {
    if constexpr (std::is_same_v<Type, bool>) return "true or false";
    if constexpr (std::is_same_v<Type, double>) return "a number";
    return "an integer";
  }

  [[nodiscard]] const toml::node& required(std::string_view field, std::string_view expected) const {
    if (const toml::node* node = table_.get(field)) return *node;
    throw ConfigError(fmt::format("{}: field '{}' is missing; add it as {}", path_, field, expected));
  }

  [[noreturn]] void fail(const toml::node& node, std::string_view what) const {
    throw ConfigError(fmt::format("{}:{}: {}", path_, node.source().begin.line, what));
  }

  std::string path_;
  const toml::table& table_;
};

RopeScaling rope_scaling(const Fields& fields) {
  RopeScaling scaling{.type = fields.choice<RopeScalingType>("type")};
  fields.expect(field_names(scaling.type));
  if (scaling.type != RopeScalingType::None) scaling.factor = fields.get<double>("factor");
  if (scaling.type == RopeScalingType::Llama3) {
    scaling.low_frequency_factor = fields.get<double>("low_frequency_factor");
    scaling.high_frequency_factor = fields.get<double>("high_frequency_factor");
    scaling.original_positions = fields.size("original_positions");
  }
  return scaling;
}

void read_llamas_fields(const Fields& fields, ModelConfig& config) {
  fields.get_if_there("key_value_heads", config.key_value_heads);
  fields.get_if_there("head_size", config.head_size);
  fields.get_if_there("sliding_window", config.sliding_window);
  fields.get_if_there("rope_theta", config.rope_theta);
  fields.get_if_there("feed_forward_bias", config.feed_forward_bias);
  fields.get_if_there("query_key_norm", config.query_key_norm);
  if (fields.has("attention_bias")) config.attention_bias = fields.choice<AttentionBias>("attention_bias");
  if (fields.has("rope_scaling")) config.rope_scaling = rope_scaling(fields.table("rope_scaling"));
}

}  // namespace

ModelConfig model_from_toml(const std::string& text, const std::string& path) {
  const toml::table table = parse(text, path);
  const Fields fields(path, table);
  const auto family = fields.choice<Family>("family");
  fields.expect(field_names(family));
  ModelConfig config{.name = std::filesystem::path(path).stem().string(),
                     .family = family,
                     .layers = fields.size("layers"),
                     .hidden = fields.size("hidden"),
                     .heads = fields.size("heads"),
                     .feed_forward = fields.size("feed_forward"),
                     .vocabulary = fields.size("vocabulary"),
                     .positions = fields.size("positions"),
                     .tied = fields.get<bool>("tied")};
  fields.get_if_there("norm_epsilon", config.norm_epsilon);
  if (family == Family::Llama) read_llamas_fields(fields, config);
  try {
    require_valid(config);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: {}", path, error.what()));
  }
  return config;
}

ModelConfig read_model_file(const std::string& path) { return model_from_toml(read_text(path), path); }

}  // namespace chimera
