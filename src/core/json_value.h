#pragma once
// Reads JSON files of users. Every JsonValue can tell its file and its path in the file, so that error messages begin
// like `costs.json: stages[2].forward: ...`.

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace chimera {

/// Parses the text. Throws ConfigError, naming `source`, if it is not JSON, nests deeper than 100, or an object has a
/// field twice.
[[nodiscard]] nlohmann::json parse_json(std::string_view text, const std::string& source);

/// Returns the message of an exception of nlohmann::json in ASCII on one line.
[[nodiscard]] std::string parser_message(const nlohmann::detail::exception& error);

/// One value of a JSON document. Borrows the document. Accessors throw ConfigError, with source and path, if the value
/// has the wrong type or is out of range, or if a field is missing. A function with a `name` reads that field of this
/// object.
class JsonValue {
 public:
  /// `source` is the file, and `path` the place of `json` in it, for messages. An empty source means a request instead
  /// of a file, and an empty path the whole document.
  JsonValue(const nlohmann::json& json, std::string source, std::string path = "");

  /// Throws ConfigError with source, path and `what`.
  [[noreturn]] void fail(const std::string& what) const;
  [[nodiscard]] const nlohmann::json& json() const { return json_; }

  /// Throws ConfigError if the value is not an object, or has a field that is not in `fields`. Fields may be missing.
  void expect_object(const std::vector<const char*>& fields) const;
  /// Returns whether this value is an object with this field.
  [[nodiscard]] bool has(const char* name) const;
  /// Returns the value of this field.
  [[nodiscard]] JsonValue field(const char* name) const;

  /// Returns the elements of an array.
  [[nodiscard]] std::vector<JsonValue> list() const;
  /// Returns the elements of an array, which must have `entries` elements. `of_what` is for the error message: the kind
  /// of thing that has one element each, for example `stage`.
  [[nodiscard]] std::vector<JsonValue> list(std::int64_t entries, const char* of_what) const;

  /// Default limit of number(), so that sums and products stay finite.
  static constexpr double kMax = 1e100;

  /// Returns a number from 0 to `most`.
  [[nodiscard]] double number(double most = kMax) const;
  [[nodiscard]] double number(const char* name, double most = kMax) const { return field(name).number(most); }
  /// Returns a whole number from `least` to 10^9.
  [[nodiscard]] std::int64_t count(const char* name, std::int64_t least = 0) const;
  /// Returns `entries` numbers, each 0 to kMax: the elements of an array of that length, or a single number repeated.
  /// `of_what` has the same meaning as in list().
  [[nodiscard]] std::vector<double> numbers(std::int64_t entries, const char* of_what) const;
  /// Returns a string.
  [[nodiscard]] std::string text() const;
  [[nodiscard]] std::string text(const char* name) const { return field(name).text(); }
  /// Returns a boolean.
  [[nodiscard]] bool truth(const char* name) const;

 private:
  struct Document {
    const nlohmann::json& json;
    std::string source;
    std::string path;
  };
  JsonValue(const nlohmann::json& json, const std::shared_ptr<const Document>& document)
      : json_(json), document_(document) {}

  const nlohmann::json& json_;
  std::shared_ptr<const Document> document_;  // Contains the value; a message finds its path there
};

}  // namespace chimera
