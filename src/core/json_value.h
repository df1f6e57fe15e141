#pragma once
// Values of a JSON file with their path in it, for messages such as `costs.json: stages[2].forward: ...`.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace chimera {

/// Parses the text. Throws ConfigError, naming `source`, if it is not JSON, nests deeper than 100, or an object has a
/// field twice.
[[nodiscard]] nlohmann::json parse_json(const std::string& text, const std::string& source);

/// Returns the parser's message in ASCII on one line.
[[nodiscard]] std::string parser_message(const nlohmann::detail::exception& error);

/// One value of a JSON that must outlive it. Accessors throw ConfigError with its path if it has the wrong kind or
/// range.
class JsonValue {
 public:
  JsonValue(const nlohmann::json& json, std::string source, std::string path = "");

  [[noreturn]] void fail(const std::string& what) const;
  [[nodiscard]] const nlohmann::json& json() const { return json_; }

  /// Requires an object with only these fields. The error suggests the nearest one.
  void expect_object(const std::vector<const char*>& fields) const;
  [[nodiscard]] bool has(const char* name) const;
  [[nodiscard]] JsonValue field(const char* name) const;

  [[nodiscard]] std::vector<JsonValue> list() const;
  /// Returns the entries of an array; requires `entries` of them, one for each `of_what`.
  [[nodiscard]] std::vector<JsonValue> list(std::int64_t entries, const char* of_what) const;

  /// Largest number, so that sums and products stay finite.
  static constexpr double kMost = 1e100;

  [[nodiscard]] double number(double most = kMost) const;
  [[nodiscard]] double number(const char* name, double most = kMost) const { return field(name).number(most); }
  /// Returns a whole number from `least` to 10^9.
  [[nodiscard]] std::int64_t count(const char* name, std::int64_t least = 0) const;
  /// Returns a list of numbers, or one number repeated for all entries.
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
