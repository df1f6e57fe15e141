#include "answers/door.h"

#include <algorithm>
#include <cmath>

#include "core/limits.h"
#include "core/mapped.h"
#include "core/reject.h"

namespace chimera {
namespace {

std::string text_of(const JsonValue& value) {
  // All doors pass values as texts, so that the same code parses a value from JSON and from the command line.
  const nlohmann::json& json = value.json();
  if (json.is_string()) return value.text();
  if (json.is_boolean()) return json.get<bool>() ? "true" : "false";
  if (!json.is_number()) value.fail(fmt::format("expected a number, a text or a list, found {}", json.type_name()));
  // 1e3 is a whole number too.
  constexpr double kMaxExact = 1e15;
  const auto number = json.get<double>();
  const bool is_whole = number == std::floor(number) && std::abs(number) < kMaxExact;
  return is_whole ? std::to_string(std::llround(number)) : fmt::format("{}", number);
}

}  // namespace

std::string Field::flag_name() const {
  if (flag != nullptr) return flag;
  std::string words = "--" + name;
  std::replace(words.begin(), words.end(), '_', '-');
  return words;
}

void Field::check(std::int64_t number) const {
  if (most > 0) return require_between(flag_name(), number, least, most);
  if (number < least) reject("{}: {} is not {} or more", flag_name(), number, least);
}

void JsonDoor::text(const Field& field, const Take& take) {
  const auto value = find(field.name);
  if (!value) return;
  if (!value->json().is_array()) return take(text_of(*value));
  std::string list;
  for (const JsonValue& each : value->list()) list += (list.empty() ? "" : ",") + text_of(each);
  // An empty list is an absent field.
  if (!list.empty()) take(list);
}

void JsonDoor::document(const Field& field, Document& document) {
  // A page has no files: the text itself comes, and messages call it by the name of the field.
  if (const auto value = find(field.name)) document = {field.flag_name().substr(2), value->text()};
}

void JsonDoor::object(const char* name, const std::function<void(Door&)>& visit) {
  const auto value = find(name);
  // An absent object has no fields, but some may be required.
  const nlohmann::json none = nlohmann::json::object();
  JsonDoor door(value ? *value : JsonValue(none, "", name));
  visit(door);
  door.finish();
}

void JsonDoor::finish() const {
  // find() was called for each field of the request, so what is not among the names is unknown to it.
  object_.expect_object(mapped(names_, &std::string::c_str));
}

std::optional<JsonValue> JsonDoor::find(const std::string& name) {
  names_.push_back(name);
  if (!object_.has(name.c_str()) || object_.json()[name].is_null()) return std::nullopt;
  return object_.field(name.c_str());
}

}  // namespace chimera
