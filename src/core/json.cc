#include "core/json.h"

#include <fmt/format.h>

#include <cmath>

namespace chimera {
namespace {

void write_counts_whole(nlohmann::ordered_json& json, bool is_count) {
  if (json.is_number_float()) {
    const auto value = json.get<double>();
    if (is_count && value == std::floor(value) && std::abs(value) < 1e18) json = static_cast<std::int64_t>(value);
    return;
  }
  if (!json.is_structured()) return;
  for (const auto& [name, value] : json.items())
    write_counts_whole(value, is_count || name.ends_with("bytes") || name.ends_with("flops"));
}

}  // namespace

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

std::string json_report(nlohmann::ordered_json report) {
  write_counts_whole(report, false);
  return json_text(report, 2) + "\n";
}

std::string json_key(std::string words) {
  for (char& letter : words)
    if (letter == ' ' || letter == '-') letter = '_';
  return words;
}

std::string json_number(double value) {
  return value == std::floor(value) && std::abs(value) < 1e15 ? fmt::format("{:.1f}", value) : fmt::format("{}", value);
}

}  // namespace chimera
