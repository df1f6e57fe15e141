#pragma once

// Reads and writes JSON objects by one description of their fields: a function visit(JsonFields&, Struct&) that visits
// each field of a struct. The same function runs to read an object and to write one, with the fields in that order.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/choices.h"
#include "core/json_value.h"
#include "core/mapped.h"
#include "core/printable.h"

namespace chimera {

/// The fields of an object that is read or written. Its functions throw ConfigError, with the place in the JSON, if a
/// field that is read is missing or invalid.
class JsonFields {
 public:
  /// Reads a struct by visit(JsonFields&, Struct&). Throws ConfigError unless `object` is an object that has only the
  /// visited fields.
  template <class Struct, class Visit>
  static void read(const JsonValue& object, Struct& into, const Visit& visit) {
    if (!object.json().is_object()) object.expect_object({});
    JsonFields fields(&object, nullptr);
    visit(fields, into);
    object.expect_object(fields.names_);
  }

  /// Returns the object with the fields of the struct. `visit` may change the struct.
  template <class Struct, class Visit>
  [[nodiscard]] static nlohmann::ordered_json written(Struct& from, const Visit& visit) {
    nlohmann::ordered_json object = nlohmann::ordered_json::object();
    JsonFields fields(nullptr, &object);
    visit(fields, from);
    return object;
  }

  [[nodiscard]] bool reads() const { return from_ != nullptr; }

  /// Allows a field. Returns whether to visit it: whether the object that is read has it, or `is_written`.
  bool has(const char* name, bool is_written) {
    know(name);
    return reads() ? from_->has(name) : is_written;
  }

  /// Throws ConfigError with the place of the field unless what was read holds.
  void require(bool holds, const char* name, const std::string& what) const {
    if (reads() && !holds) from_->field(name).fail(what);
  }

  /// Throws ConfigError with the place of the object unless what was read holds.
  void require_all(bool holds, const std::string& what) const {
    if (reads() && !holds) from_->fail(what);
  }

  /// Visits a required field, whose value `read` returns.
  template <class Value, class Read>
  void field(const char* name, Value& value, const Read& read) {
    know(name);
    if (reads()) {
      find_misspelled(name);
      value = read(from_->field(name));
    } else {
      (*to_)[name] = value;
    }
  }
  template <class Value>
  void field(const char* name, Value& value) {
    field(name, value, [&](const JsonValue& json) {
      if constexpr (std::is_same_v<Value, bool>) return from_->truth(name);
      if constexpr (std::is_same_v<Value, double>) return json.number();
      if constexpr (std::is_same_v<Value, std::int64_t>) return from_->count(name);
      if constexpr (std::is_same_v<Value, std::string>) return json.text();
      if constexpr (std::is_same_v<Value, std::vector<std::string>>)
        return mapped(json.list(), [](const JsonValue& each) { return each.text(); });
    });
  }
  template <NamedEnum Enum>
  void field(const char* name, Enum& value) {
    std::string text = to_text(value);
    field(name, text);
    const auto named = find_named<Enum>(text);
    if (!named) from_->field(name).fail(unknown_name(name, text, names_of<Enum>()));
    value = *named;
  }
  /// Visits a field that may be absent.
  template <class Value>
  void field(const char* name, std::optional<Value>& value) {
    if (!has(name, value.has_value())) return;
    if (reads()) value.emplace();
    field(name, *value);
  }
  /// Visits a field that is absent if the value is 0, false or empty.
  template <class Value>
  void field_unless_zero(const char* name, Value& value) {
    if (has(name, value != Value{})) field(name, value);
  }

  void number(const char* name, double& value, double most) {
    field(name, value, [&](const JsonValue& json) { return json.number(most); });
  }
  void count(const char* name, std::int64_t& value, std::int64_t least) {
    field(name, value, [&](const JsonValue&) { return from_->count(name, least); });
  }
  /// Visits a list of numbers as JsonValue::numbers() does.
  void numbers(const char* name, std::vector<double>& values, std::int64_t entries, const char* of_what) {
    field(name, values, [&](const JsonValue& json) { return json.numbers(entries, of_what); });
  }

  template <class Struct, class Visit>
  void object(const char* name, Struct& value, const Visit& visit) {
    know(name);
    if (reads())
      read(from_->field(name), value, visit);
    else
      (*to_)[name] = written(value, visit);
  }
  template <class Struct, class Visit>
  void object(const char* name, std::optional<Struct>& value, const Visit& visit) {
    if (!has(name, value.has_value())) return;
    if (reads()) value.emplace();
    object(name, *value, visit);
  }
  /// Visits a list of objects: of any length, or with `entries`, one for each `of_what`.
  template <class Struct, class Visit>
  void list(const char* name, std::vector<Struct>& structs, const Visit& visit,
            std::optional<std::int64_t> entries = std::nullopt, const char* of_what = "") {
    know(name);
    if (reads()) {
      const JsonValue json = from_->field(name);
      for (const JsonValue& each : entries ? json.list(*entries, of_what) : json.list())
        read(each, structs.emplace_back(), visit);
      return;
    }
    auto& json = (*to_)[name] = nlohmann::ordered_json::array();
    for (Struct& each : structs) json.push_back(written(each, visit));
  }

 private:
  JsonFields(const JsonValue* from, nlohmann::ordered_json* to) : from_(from), to_(to) {}

  void know(const char* name) {
    if (std::find(names_.begin(), names_.end(), std::string_view(name)) == names_.end()) names_.push_back(name);
  }

  /// Throws ConfigError if the object has a field with a similar name instead.
  void find_misspelled(const std::string& name) const {
    if (from_->has(name.c_str())) return;
    for (const auto& item : from_->json().items())
      if (find_nearest(item.key(), std::span(&name, 1)))
        from_->fail(unknown_name("field", printable(item.key()), std::span(&name, 1)));
  }

  const JsonValue* from_;           // null: writes
  nlohmann::ordered_json* to_;      // null: reads
  std::vector<const char*> names_;  // visited so far
};

}  // namespace chimera
