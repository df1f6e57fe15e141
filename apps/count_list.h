#pragma once
// What a flag that takes several numbers says.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace chimera::apps {

/// What stands between the commas of a list; one part, perhaps empty, where there are none. Borrows from `list`.
[[nodiscard]] std::vector<std::string_view> parts_of(std::string_view list);

/// No flag lists more numbers.
inline constexpr std::size_t kMostListed = 10'000;

/// Whether the text lists numbers, or says one in stages, in place of giving one.
[[nodiscard]] bool is_list(const std::string& text);

/// `4,8,16`, `1..4` or a mixture, in the order given. Where `depth` is not 0, numbers may be multiples of it: `D`,
/// `2D`, and `D..4D` for all multiples from one to the other. Throws ConfigError, saying what the flag takes, for
/// anything else, for more than kMostListed numbers and for a multiple of D that does not fit an integer.
[[nodiscard]] std::vector<std::int64_t> parse_count_list(const std::string& flag, const std::string& text,
                                                         std::int64_t depth = 0);

/// Numbers of at least `least`, separated by commas, in the order given: `0,0.1,0.3`. Throws ConfigError, saying what
/// the flag takes, for anything else and for more than kMostListed of them.
[[nodiscard]] std::vector<double> parse_number_list(const std::string& flag, const std::string& text, double least);

}  // namespace chimera::apps
