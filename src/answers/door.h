#pragma once

// A *request* is the struct of a command's inputs, such as SimulateRequest. Its function visit(Door&) declares each
// field once, with name, meaning and range. A *door* reads the values of the fields from one kind of input: FlagDoor
// (apps/flags/flag_door.h) from the command line, JsonDoor from the JSON of the playground (a web page) and of Python.
// So all three accept the same fields and values. Error messages name a field by its flag, such as `--max-in-flight`;
// for requests in JSON, playground.cc replaces the flag by the JSON field, `max_in_flight`. A field of JSON that is
// null is absent.

#include <functional>
#include <type_traits>
#include <utility>

#include "core/choices.h"
#include "core/json_value.h"
#include "core/value_text.h"

namespace chimera {

/// A field of a request.
struct Field {
  std::string name;            // in JSON and Python, such as `max_in_flight`; the flag is `--max-in-flight`
  std::string meaning = "";    // for --help; empty: the field has no flag
  std::string type = "";       // placeholder of the value in --help, such as `N`; empty: type_of(); a bool has none
  std::int64_t least = 0;      // smallest number
  std::int64_t most = 0;       // largest whole number; 0: any
  const char* flag = nullptr;  // with dashes, such as `--costs`; null: made from the name
  int entries = 1;             // words of the value on the command line; 0: a repeatable flag with a word each

  /// Returns the flag with dashes.
  [[nodiscard]] std::string flag_name() const;
  /// Throws ConfigError unless the number is within the limits.
  void check(std::int64_t number) const;
};

/// The text of a file.
struct Document {
  std::string source;  // path or, if a door has only the text, the name of the field; empty: not given
  std::string text = {};

  [[nodiscard]] bool is_given() const { return !source.empty(); }
};

/// Parses the value of a field: a number within the limits of the field, numbers separated by commas, `true` or
/// `false`, the name of an enumerator, or any text. Throws ConfigError for an invalid one.
template <class Value>
[[nodiscard]] Value value_of(const Field& field, const std::string& text) {
  const std::string flag = field.flag_name();
  if constexpr (std::is_same_v<Value, double>) return parse_amount(flag, text, static_cast<double>(field.least));
  if constexpr (std::is_same_v<Value, std::int64_t>) {
    const std::int64_t number = parse_count(flag, text);
    field.check(number);
    return number;
  }
  if constexpr (std::is_same_v<Value, bool>) return name_for(flag, text, {"true", "false"}) == "true";
  if constexpr (std::is_same_v<Value, std::vector<double>>) return parse_number_list(flag, text, 0);
  if constexpr (std::is_same_v<Value, std::vector<std::int64_t>>) {
    std::vector<std::int64_t> numbers = parse_count_list(flag, text);
    for (const std::int64_t number : numbers) field.check(number);
    return numbers;
  }
  if constexpr (std::is_same_v<Value, std::string>) return text;
  if constexpr (NamedEnum<Value>) return parse_named<Value>(flag, name_for(flag, text, names_of<Value>()));
}

/// Returns Field::type for values of this type.
template <class Value>
[[nodiscard]] std::string type_of() {
  if constexpr (std::is_same_v<Value, double>) return "X";
  if constexpr (std::is_same_v<Value, std::int64_t>) return "N";
  std::string type;
  if constexpr (NamedEnum<Value>)
    for (const std::string& name : names_of<Value>()) type += (type.empty() ? "" : "|") + name;
  return type;
}

/// Gives the fields of a request their values. visit() of the request calls one of these functions for each field. They
/// throw ConfigError, naming the field, for an invalid value. A FlagDoor keeps references to the fields and sets them
/// later, when the command line is parsed.
class Door {
 public:
  /// Takes the text of a value.
  using Take = std::function<void(const std::string&)>;

  virtual ~Door() = default;

  /// Puts the fields from now on into this group of --help.
  virtual void group(const char* /*heading*/) {}
  /// Calls `take` with the text of the value if the field is given. Several words (Field::entries) and the numbers of a
  /// JSON list are joined by commas.
  virtual void text(const Field& field, const Take& take) = 0;
  /// Sets `document` to the file whose path the flag gives, or to the text that the JSON field holds.
  virtual void document(const Field& field, Document& document) = 0;
  /// Visits fields that are an object of their own in JSON, called `name`. On the command line, they are flags like all
  /// others.
  virtual void object(const char* name, const std::function<void(Door&)>& visit) = 0;

  /// Reads a field by the type of its value. An absent field leaves the value as it is.
  template <class Value>
  void field(const Field& field, Value& value) {
    take_as<Value>(field, value);
  }
  template <class Value>
  void field(const Field& field, std::optional<Value>& value) {
    take_as<Value>(field, value);
  }

 private:
  template <class Value, class Target>
  void take_as(Field field, Target& target) {
    if (field.type.empty()) field.type = type_of<Value>();
    text(field, [field, &target](const std::string& given) { target = value_of<Value>(field, given); });
  }
};

/// Reads the fields of a request from a JSON object at once.
class JsonDoor : public Door {
 public:
  /// `others` are names of fields that the caller reads itself; finish() accepts them.
  explicit JsonDoor(JsonValue object, std::vector<std::string> others = {})
      : object_(std::move(object)), names_(std::move(others)) {}

  void text(const Field& field, const Take& take) override;
  void document(const Field& field, Document& document) override;
  void object(const char* name, const std::function<void(Door&)>& visit) override;

  /// Throws ConfigError if the object has a field that was not visited.
  void finish() const;

 private:
  [[nodiscard]] std::optional<JsonValue> find(const std::string& name);

  JsonValue object_;
  std::vector<std::string> names_;
};

/// Returns the request with the fields of a JSON object. `others` are names of further fields, which the caller reads.
/// Throws ConfigError for an invalid value and for any other field.
template <class Request>
[[nodiscard]] Request read_request(const JsonValue& json, std::vector<std::string> others = {}) {
  Request request;
  JsonDoor door(json, std::move(others));
  request.visit(door);
  door.finish();
  return request;
}

}  // namespace chimera
