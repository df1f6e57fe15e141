#pragma once
// Values of a JSON file that know their place in it, for messages such as `costs.json: stages[2].forward: ...`.

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace chimera {

/// The text as JSON. Throws ConfigError, naming `source`, where it is none, or an object has a field twice.
[[nodiscard]] nlohmann::json parse_json(const std::string& text, const std::string& source);

/// What nlohmann's parser says of a text, as one line of ASCII.
[[nodiscard]] std::string parser_message(const nlohmann::detail::exception& error);

/// One value. The JSON that it points into must outlive it. Everything here throws ConfigError, naming the value's
/// place, where the value is not what is asked for.
class JsonValue {
 public:
  JsonValue(const nlohmann::json& json, std::string source, std::string path = "");

  [[noreturn]] void fail(const std::string& what) const;
  /// The value itself.
  [[nodiscard]] const nlohmann::json& json() const { return json_; }

  /// An object with no other fields than these; an unknown one is refused with the nearest of them.
  void expect_object(std::initializer_list<const char*> fields) const;
  [[nodiscard]] bool has(const char* name) const;
  [[nodiscard]] JsonValue field(const char* name) const;

  /// The entries of an array.
  [[nodiscard]] std::vector<JsonValue> list() const;
  /// The same, and the array must have exactly `entries` of them, one for each `of_what`.
  [[nodiscard]] std::vector<JsonValue> list(std::int64_t entries, const char* of_what) const;

  /// No number is larger, so that sums and products of them stay finite.
  static constexpr double kMost = 1e100;

  /// A number of 0 to `most`.
  [[nodiscard]] double number(double most = kMost) const;
  [[nodiscard]] double number(const char* name, double most = kMost) const { return field(name).number(most); }
  /// A whole number from `least` to 10^9.
  [[nodiscard]] std::int64_t count(const char* name, std::int64_t least = 0) const;
  /// A list of numbers, or one number that stands for all of them.
  [[nodiscard]] std::vector<double> numbers(std::int64_t entries, const char* of_what) const;
  [[nodiscard]] std::string text() const;
  [[nodiscard]] std::string text(const char* name) const { return field(name).text(); }
  [[nodiscard]] bool truth(const char* name) const;

 private:
  const nlohmann::json& json_;
  std::string source_;
  std::string path_;
};

}  // namespace chimera
