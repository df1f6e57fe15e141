#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

#include "core/error.h"

// "Did you mean ...?": the known name that a mistyped one is nearest to.

// Enumerations that flags, files and reports write as words: each has one table of names, and all reading and printing
// goes through it.

// Texts that are numbers.

// What a run is asked to compute with, and where: the choices that planning, training, profiling and the command line
// have in common. Those that belong to one type of a higher floor stand beside it: AllReducePlacement, ReplicaLayout,
// ScaleMethod.

namespace chimera {

/// The candidate with the smallest edit distance to `name`, unless all are farther than half its length (at least 2).
/// Ties go to the earlier candidate.
[[nodiscard]] std::optional<std::string> nearest(std::string_view name, std::span<const std::string> candidates);

/// One line for an unknown name: `unknown schedule 'chimra'; did you mean 'chimera'?`, or the list of legal names where
/// none is near. `what` is the kind of thing named.
[[nodiscard]] std::string unknown_name(std::string_view what, std::string_view name,
                                       std::span<const std::string> candidates);

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

/// The number that the whole text is, without blanks or a plus; nothing where it is none, or none of that type.
template <class Number>
[[nodiscard]] std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// Numbers that layers compute with: hidden states, their gradients, and the messages that carry them.
enum class DataType : std::uint8_t { Float32, Float64, BFloat16 };
template <>
inline constexpr auto kNames<DataType> = std::to_array<Named<DataType>>({{DataType::Float32, "float32"},
                                                                         {DataType::Float64, "float64"},
                                                                         {DataType::BFloat16, "bfloat16"}});

/// Bytes of one number of that type.
[[nodiscard]] constexpr std::int64_t bytes_of(DataType type) {
  switch (type) {
    case DataType::Float32: return 4;
    case DataType::Float64: return 8;
    case DataType::BFloat16: return 2;
  }
  return 0;
}

/// The type of master weights, of their gradients and of the optimizer's state: where layers compute with bfloat16
/// (mixed precision), float32.
[[nodiscard]] constexpr DataType master_type(DataType type) {
  return type == DataType::BFloat16 ? DataType::Float32 : type;
}

enum class OptimizerKind : std::uint8_t { AdamW, Sgd, Lamb };
template <>
inline constexpr auto kNames<OptimizerKind> = std::to_array<Named<OptimizerKind>>({{OptimizerKind::AdamW, "adamw"},
                                                                                   {OptimizerKind::Sgd, "sgd"},
                                                                                   {OptimizerKind::Lamb, "lamb"}});

/// Numbers that the optimizer remembers for each parameter, in the master weights' type: two moments, of SGD none.
[[nodiscard]] constexpr std::int64_t moments_of(OptimizerKind optimizer) {
  return optimizer == OptimizerKind::Sgd ? 0 : 2;
}

/// The order in which a step's gradients are added.
enum class ReductionOrder : std::uint8_t {
  Natural,    ///< the order in which the schedule accumulates them
  Canonical,  ///< one order for all schedules, depths and groups: deterministic in every bit
};
template <>
inline constexpr auto kNames<ReductionOrder> = std::to_array<Named<ReductionOrder>>(
    {{ReductionOrder::Natural, "natural"}, {ReductionOrder::Canonical, "canonical"}});

/// What ranks are, and so what connects them.
enum class TransportKind : std::uint8_t { Processes, Threads };
template <>
inline constexpr auto kNames<TransportKind> =
    std::to_array<Named<TransportKind>>({{TransportKind::Processes, "processes"}, {TransportKind::Threads, "threads"}});

/// Where tensors live.
enum class DeviceKind : std::uint8_t { Cpu, Cuda };
template <>
inline constexpr auto kNames<DeviceKind> = std::to_array<Named<DeviceKind>>({{DeviceKind::Cpu, "cpu"},
                                                                             {DeviceKind::Cuda, "cuda"}});

}  // namespace chimera
