#include "hugging_face/config_fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "core/error.h"

namespace chimera {
namespace {

/// A value as messages show it.
std::string shown_value(const nlohmann::ordered_json& value) {
  constexpr std::size_t kLongest = 60;
  const std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::ordered_json::error_handler_t::replace);
  return text.size() > kLongest ? text.substr(0, kLongest) + " ..." : text;
}

}  // namespace

ConfigFields::ConfigFields(const nlohmann::ordered_json& json, std::string source)
    : json_(json), source_(std::move(source)) {
  if (!json.is_object()) fail("must be an object");
}

void ConfigFields::fail(const std::string& what) const { throw ConfigError(fmt::format("{}: {}", source_, what)); }

void ConfigFields::fail_type(const char* name, const char* expected) const {
  fail(fmt::format("{} must be {}, not {}", name, expected, shown_value(json_.at(name))));
}

void ConfigFields::refuse(const char* name, const std::string& supported) const {
  fail(fmt::format("{} is {}, which Chimera does not have; {}", name, shown_value(json_.at(name)), supported));
}

const nlohmann::ordered_json* ConfigFields::find(const char* name) const {
  const auto found = json_.find(name);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

bool ConfigFields::has(const char* name) const { return find(name) != nullptr; }

ConfigFields ConfigFields::object(const char* name) const {
  return {json_.at(name), fmt::format("{}: {}", source_, name)};
}

std::int64_t ConfigFields::integer(const char* name, std::int64_t absent) const {
  const auto* const value = find(name);
  if (value == nullptr) return absent;
  const bool fits = value->is_number_integer() &&
                    (!value->is_number_unsigned() ||
                     value->get<std::uint64_t>() <= std::uint64_t{std::numeric_limits<std::int64_t>::max()});
  if (!fits) fail_type(name, "a whole number");
  return value->get<std::int64_t>();
}

double ConfigFields::number(const char* name, double absent) const {
  const auto* const value = find(name);
  if (value == nullptr) return absent;
  if (!value->is_number()) fail_type(name, "a number");
  return value->get<double>();
}

bool ConfigFields::truth(const char* name, bool absent) const {
  const auto* const value = find(name);
  if (value == nullptr) return absent;
  if (!value->is_boolean()) fail_type(name, "true or false");
  return value->get<bool>();
}

std::string ConfigFields::text(const char* name, const char* absent) const {
  const auto* const value = find(name);
  if (value == nullptr) return absent;
  if (!value->is_string()) fail_type(name, "a text");
  return value->get<std::string>();
}

void ConfigFields::require(const char* name, bool supported) const {
  if (truth(name, supported) != supported) refuse(name, fmt::format("it has {}", supported));
}

void ConfigFields::require(const char* name, double supported) const {
  if (number(name, supported) != supported) refuse(name, fmt::format("it has {}", supported));
}

void ConfigFields::require(const char* name, std::initializer_list<const char*> supported) const {
  const std::string value = text(name, *supported.begin());
  const auto is_value = [&](const char* one) { return value == one; };
  if (std::ranges::none_of(supported, is_value)) refuse(name, fmt::format("it has {}", fmt::join(supported, ", ")));
}

void ConfigFields::require_absent(const char* name) const {
  const auto* const value = find(name);
  if (value == nullptr || (value->is_boolean() && !value->get<bool>())) return;
  if (value->is_structured() && value->empty()) return;
  refuse(name, "leave such a model to transformers");
}

}  // namespace chimera
