#pragma once
// Enumerations that flags, files and reports write as words: each has one table of names, and all reading and printing
// goes through it.

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/error.h"
#include "core/nearest.h"

namespace chimera {

/// A value of an enumeration and its word.
template <class Enum>
struct Named {
  Enum value;
  const char* name;
};

/// The words of an enumeration, in the order in which help lists them. Beside the enumeration's definition:
///   template <>
///   inline constexpr auto kNames<Side> = std::to_array<Named<Side>>({{Side::Left, "left"}, {Side::Right, "right"}});
template <class Enum>
inline constexpr auto kNames = nullptr;

/// An enumeration with a table of names.
template <class Enum>
concept NamedEnum = std::is_enum_v<Enum> && !std::is_null_pointer_v<std::remove_cv_t<decltype(kNames<Enum>)>>;

/// The value's word.
template <NamedEnum Enum>
[[nodiscard]] std::string to_text(Enum value) {
  for (const Named<Enum>& named : kNames<Enum>) {
    if (named.value == value) return named.name;
  }
  return "";  // unreachable: tables are complete
}

/// All words of the enumeration.
template <NamedEnum Enum>
[[nodiscard]] std::vector<std::string> names_of() {
  std::vector<std::string> names;
  for (const Named<Enum>& named : kNames<Enum>) names.emplace_back(named.name);
  return names;
}

/// The value of that word; none where no value has it.
template <NamedEnum Enum>
[[nodiscard]] std::optional<Enum> find_named(std::string_view name) {
  for (const Named<Enum>& named : kNames<Enum>) {
    if (named.name == name) return named.value;
  }
  return std::nullopt;
}

/// The value of that word. `what` is the flag or field that it stands in. Throws ConfigError for an unknown one, with
/// the nearest known one: `unknown --dtype 'float31'; did you mean 'float32'?`.
template <NamedEnum Enum>
[[nodiscard]] Enum parse_named(std::string_view what, std::string_view name) {
  if (const auto value = find_named<Enum>(name)) return *value;
  throw ConfigError(unknown_name(what, name, names_of<Enum>()));
}

}  // namespace chimera
