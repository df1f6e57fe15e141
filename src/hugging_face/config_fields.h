#pragma once
// The fields of a config.json, with messages that say which one is wrong.

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>

namespace chimera {

/// One object of a config.json; the JSON must outlive it. Everything here throws ConfigError where a field has another
/// type than is asked for, or a value that Chimera has nothing for.
class ConfigFields {
 public:
  ConfigFields(const nlohmann::ordered_json& json, std::string source);

  [[noreturn]] void fail(const std::string& what) const;

  /// Whether the field is there and not null.
  [[nodiscard]] bool has(const char* name) const;
  /// Whether it is there, perhaps as null.
  [[nodiscard]] bool names(const char* name) const { return json_.contains(name); }
  /// An object within this one.
  [[nodiscard]] ConfigFields object(const char* name) const;
  [[nodiscard]] const nlohmann::ordered_json& operator[](const char* name) const { return json_.at(name); }

  // Values; `absent` where the field is missing or null.
  [[nodiscard]] std::int64_t integer(const char* name, std::int64_t absent) const;
  [[nodiscard]] double number(const char* name, double absent) const;
  [[nodiscard]] bool truth(const char* name, bool absent) const;
  [[nodiscard]] std::string text(const char* name, const char* absent) const;

  /// Refuses every value but `supported`, which is also that of a missing field.
  void require(const char* name, bool supported) const;
  void require(const char* name, double supported) const;
  /// Refuses all but these texts; a missing field is the first.
  void require(const char* name, std::initializer_list<const char*> supported) const;
  /// Refuses the field wherever it says something: not null, false, nor empty.
  void require_absent(const char* name) const;

 private:
  [[nodiscard]] const nlohmann::ordered_json* find(const char* name) const;
  [[noreturn]] void fail_type(const char* name, const char* expected) const;
  [[noreturn]] void refuse(const char* name, const std::string& supported) const;

  const nlohmann::ordered_json& json_;
  std::string source_;
};

}  // namespace chimera
