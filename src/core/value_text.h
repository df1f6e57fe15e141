#pragma once

// Parses values that users write: numbers such as 1e3, lists such as `4,8,16` or `D..4D`, and names. `flag` is the flag
// or field that holds the text, for messages. The functions with a `flag` throw ConfigError for other texts.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace chimera {

/// Splits `text` at each `separator`. The results, at least one, may be empty; they are views into `text`.
[[nodiscard]] std::vector<std::string_view> split_at(char separator, std::string_view text);
[[nodiscard]] inline std::vector<std::string_view> split_at_commas(std::string_view list) {
  return split_at(',', list);
}

/// Maximum number of values in a list.
inline constexpr std::size_t kMaxListed = 10'000;

/// Returns whether the text has a comma, a period or a D, as a list (`4,8`), a range (`1..4`), or a multiple of the
/// number of stages (`2D`) has. Does not check that it is a valid list. For whole numbers only, because 0.5 has a
/// period.
[[nodiscard]] bool is_list(const std::string& text);

/// Parses a list of whole numbers and ascending ranges, such as `4,8,16`, `1..4` or `1..4,8`. If `depth`, the number of
/// stages, is not 0, D stands for it: `D`, `2D`, `D..4D` (in steps of D). Throws ConfigError for other texts, more than
/// kMaxListed numbers, or a number above 10^9. Accepts negative numbers; the caller checks them.
[[nodiscard]] std::vector<std::int64_t> parse_count_list(const std::string& flag, const std::string& text,
                                                         std::int64_t depth = 0);

/// Parses numbers of at least `least`, such as `0,0.1,0.3`. Throws ConfigError for other texts and more than
/// kMaxListed numbers.
[[nodiscard]] std::vector<double> parse_number_list(const std::string& flag, const std::string& text, double least);

/// Throws ConfigError, naming `chimera sweep`, if the text is a list or a range.
void require_no_list(const std::string& flag, const std::string& text);

/// Parses a whole number, such as 1000, 1e3 or -1; the caller checks its range. Throws ConfigError for other texts.
[[nodiscard]] std::int64_t parse_count(const std::string& flag, const std::string& text);
/// Maximum of numeric flags; keeps sums and products finite.
inline constexpr double kMaxNumber = 1e100;
/// Parses a number from `least` to kMaxNumber. Throws ConfigError for other texts and numbers.
[[nodiscard]] double parse_amount(const std::string& flag, const std::string& text, double least = 0);

/// Returns the name in `names` that `word` means: `word` itself or, for a synonym, the usual name, such as `bfloat16`
/// for `bf16`, `float64` for `double`, `cuda` for `gpu`, and `neighbors` for `neighbours`. Throws ConfigError if there
/// is none.
[[nodiscard]] std::string name_for(const std::string& flag, const std::string& word,
                                   const std::vector<std::string>& names);

}  // namespace chimera
