#include "core/json.h"

namespace chimera {

nlohmann::json read_json(std::string_view text) { return nlohmann::json::parse(text); }

nlohmann::ordered_json read_ordered_json(std::string_view text) { return nlohmann::ordered_json::parse(text); }

nlohmann::json try_json(std::string_view text) {
  return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
}

std::string json_text(const nlohmann::json& json, int indent, JsonEncoding encoding) {
  return json.dump(indent, ' ', encoding == JsonEncoding::Ascii, nlohmann::json::error_handler_t::replace);
}

std::string json_text(const nlohmann::ordered_json& json, int indent, JsonEncoding encoding) {
  return json.dump(indent, ' ', encoding == JsonEncoding::Ascii, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace chimera
