// The one source that includes the TOML parser.
#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "core/nearest.h"
#include "model_config/config.h"

namespace chimera {
namespace {

const std::vector<std::string>& field_names() {
  static const std::vector<std::string> names = {"family",       "layers",     "hidden",    "heads",
                                                 "feed_forward", "vocabulary", "positions", "tied"};
  return names;
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

toml::table parse(const std::string& path) {
  try {
    return toml::parse(read_text(path), path);
  } catch (const toml::parse_error& error) {
    throw ConfigError(fmt::format("{}:{}: {}", path, error.source().begin.line, error.description()));
  }
}

/// The fields of one file, read with messages that say where.
class Fields {
 public:
  Fields(std::string path, const toml::table& table) : path_(std::move(path)), table_(table) {
    for (const auto& [key, value] : table_) {
      if (std::ranges::count(field_names(), key.str()) == 0) fail(value, unknown_name("field", key, field_names()));
    }
  }

  template <class Type>
  [[nodiscard]] Type get(std::string_view field, std::string_view expected) const {
    const toml::node* node = table_.get(field);
    if (node == nullptr) {
      throw ConfigError(fmt::format("{}: field '{}' is missing; add it as {}", path_, field, expected));
    }
    const auto value = node->value_exact<Type>();
    if (!value) fail(*node, fmt::format("field '{}' must be {}", field, expected));
    return *value;
  }

  [[nodiscard]] std::int64_t size(std::string_view field) const { return get<std::int64_t>(field, "an integer"); }

  [[nodiscard]] Family family() const {
    const auto name = get<std::string>("family", "\"gpt2\" or \"bert\"");
    if (const auto family = find_named<Family>(name)) return *family;
    fail(*table_.get("family"), unknown_name("family", name, names_of<Family>()));
  }

 private:
  [[noreturn]] void fail(const toml::node& node, std::string_view what) const {
    throw ConfigError(fmt::format("{}:{}: {}", path_, node.source().begin.line, what));
  }

  std::string path_;
  const toml::table& table_;
};

}  // namespace

ModelConfig read_model_file(const std::string& path) {
  const toml::table table = parse(path);
  const Fields fields(path, table);
  ModelConfig config{.name = std::filesystem::path(path).stem().string(),
                     .family = fields.family(),
                     .layers = fields.size("layers"),
                     .hidden = fields.size("hidden"),
                     .heads = fields.size("heads"),
                     .feed_forward = fields.size("feed_forward"),
                     .vocabulary = fields.size("vocabulary"),
                     .positions = fields.size("positions"),
                     .tied = fields.get<bool>("tied", "true or false")};
  try {
    validate(config);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: {}", path, error.what()));
  }
  return config;
}

}  // namespace chimera
