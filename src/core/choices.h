#pragma once
// Enumerations that users write as words, such as `--dtype bfloat16`. Each has a table of names (kNames), from which
// flags, files, help and error messages are made. The enumerations that planning, training, profiling and the command
// line share are at the end of this file.

#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

#include "core/error.h"
#include "core/mapped.h"

namespace chimera {

/// Returns the candidate with the smallest edit distance to `name`, or nothing if all distances exceed a third of its
/// length (at least 1), or if it is longer than 64 bytes. Two swapped neighbors count as one edit.
[[nodiscard]] std::optional<std::string> find_nearest(std::string_view name, std::span<const std::string> candidates);

/// Returns a one-line message: `unknown schedule 'chimra'; did you mean 'chimera'?`. Proposes candidates that begin
/// with the name, or else the nearest. If there is none, the message lists at most 32 candidates instead. `what` is the
/// kind of the name, here `schedule`.
[[nodiscard]] std::string unknown_name(std::string_view what, std::string_view name,
                                       std::span<const std::string> candidates);

/// An enumerator and its name.
template <class Enum>
struct Named {
  Enum value;
  const char* name;
};

/// Names of an enumeration, in the order of the help text. Specialize it next to the enumeration:
///   template <>
///   inline constexpr auto kNames<Side> = in_order<Side>("left", "right");
template <class Enum>
inline constexpr auto kNames = nullptr;

/// Returns a table for kNames that gives these names to the enumerators with the values 0, 1, ..., in this order.
template <class Enum, class... Texts>
[[nodiscard]] constexpr auto in_order(Texts... names) {
  int next = 0;
  return std::array{Named<Enum>{static_cast<Enum>(next++), names}...};
}

/// An enumeration with a table kNames.
template <class Enum>
concept NamedEnum = std::is_enum_v<Enum> && !std::is_null_pointer_v<std::remove_cv_t<decltype(kNames<Enum>)>>;

/// Returns the name of an enumerator.
template <NamedEnum Enum>
[[nodiscard]] std::string to_text(Enum value) {
  for (const Named<Enum>& named : kNames<Enum>)
    if (named.value == value) return named.name;
  return "";  // unreachable: tables are complete
}

/// Returns all names, in the order of kNames.
template <NamedEnum Enum>
[[nodiscard]] std::vector<std::string> names_of() {
  return mapped<std::string>(kNames<Enum>, &Named<Enum>::name);
}

/// Returns the enumerator with exactly this name, or nullopt if there is none.
template <NamedEnum Enum>
[[nodiscard]] std::optional<Enum> find_named(std::string_view name) {
  for (const Named<Enum>& named : kNames<Enum>)
    if (named.name == name) return named.value;
  return std::nullopt;
}

/// Returns the enumerator of a name. `what` is the flag or field that holds it. Throws ConfigError for an unknown name:
/// `unknown --dtype 'float31'; did you mean 'float32'?`.
template <NamedEnum Enum>
[[nodiscard]] Enum parse_named(std::string_view what, std::string_view name) {
  if (const auto value = find_named<Enum>(name)) return *value;
  throw ConfigError(unknown_name(what, name, names_of<Enum>()));
}

/// Parses the whole text as a number; nullopt if it is not one, has blanks or a plus sign, or is out of range.
template <class Number>
[[nodiscard]] std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// Type of the elements of activations, their gradients, and messages (--dtype).
enum class DataType : std::uint8_t { Float32, Float64, BFloat16 };
template <>
inline constexpr auto kNames<DataType> = in_order<DataType>("float32", "float64", "bfloat16");

/// Returns the bytes of one element.
[[nodiscard]] constexpr std::int64_t bytes_of(DataType type) {
  constexpr std::array kBytes = {4, 8, 2};
  return kBytes[static_cast<std::size_t>(type)];
}

/// Returns the type of master weights, their gradients and optimizer state if layers compute in `type`. It is float32
/// for bfloat16 (mixed precision).
[[nodiscard]] constexpr DataType master_type(DataType type) {
  return type == DataType::BFloat16 ? DataType::Float32 : type;
}

/// The optimizer (--optimizer).
enum class OptimizerKind : std::uint8_t { AdamW, Sgd, Lamb, Muon };
template <>
inline constexpr auto kNames<OptimizerKind> = in_order<OptimizerKind>("adamw", "sgd", "lamb", "muon");

/// Returns the number of optimizer state values per element of a parameter.
[[nodiscard]] constexpr std::int64_t moments_of(OptimizerKind optimizer) {
  return optimizer == OptimizerKind::Sgd ? 0 : 2;
}
/// Returns the same number for the matrices of transformer blocks (model_config/matrices.h), for which Muon keeps one
/// value instead of two.
[[nodiscard]] constexpr std::int64_t matrix_moments_of(OptimizerKind optimizer) {
  return optimizer == OptimizerKind::Muon ? 1 : moments_of(optimizer);
}

/// Order in which the gradients of a step are summed (--reduction).
enum class ReductionOrder : std::uint8_t {
  Natural,    ///< The order in which the schedule's backwards finish
  Canonical,  ///< One order for all schedules and numbers of ranks, so that gradients are equal bit by bit
};
template <>
inline constexpr auto kNames<ReductionOrder> = in_order<ReductionOrder>("natural", "canonical");

/// Whether each rank is a process or a thread (--transport).
enum class TransportKind : std::uint8_t { Processes, Threads };
template <>
inline constexpr auto kNames<TransportKind> = in_order<TransportKind>("processes", "threads");

/// Where ranks compute (--device).
enum class DeviceKind : std::uint8_t { Cpu, Cuda };
template <>
inline constexpr auto kNames<DeviceKind> = in_order<DeviceKind>("cpu", "cuda");

}  // namespace chimera
