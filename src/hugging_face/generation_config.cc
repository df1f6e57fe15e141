#include "hugging_face/generation_config.h"

#include <fmt/format.h>

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>

#include "core/error.h"
#include "core/input_file.h"
#include "hugging_face/config_json.h"

namespace chimera {
namespace {

constexpr const char* kEndOfText = "eos_token_id";

std::int64_t token_of(const nlohmann::json& json, const std::string& source) {
  if (json.is_number_integer() && json >= 0 && json <= std::numeric_limits<std::int32_t>::max()) return json;
  throw ConfigError(fmt::format("{}: {} must be the number of a token, a list of them or null", source, kEndOfText));
}

std::vector<std::int64_t> named_tokens(const std::string& text, const std::string& source) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) throw ConfigError(source + ": is no JSON object");
  const auto field = json.find(kEndOfText);
  if (field == json.end() || field->is_null()) return {};
  if (!field->is_array()) return {token_of(*field, source)};
  std::vector<std::int64_t> tokens;
  for (const nlohmann::json& token : *field) tokens.push_back(token_of(token, source));
  return tokens;
}

}  // namespace

std::vector<std::int64_t> end_tokens(const ModelFolder& folder) {
  const std::filesystem::path path = std::filesystem::path(folder.path()) / kGenerationConfigName;
  std::error_code absent;
  if (std::filesystem::exists(path, absent)) {
    return named_tokens(read_whole(path.string(), kMostConfigBytes), path.string());
  }
  return named_tokens(folder.config_json(), (path.parent_path() / kConfigName).string());
}

}  // namespace chimera
