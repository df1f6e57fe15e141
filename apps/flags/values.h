#pragma once

// Parses the texts of flags: counts such as 1e3, numbers, lists and ranges, paths, names of an enum's values. The
// parse_ functions parse a text. The add_ functions add one flag to a command, which parses its text into the given
// variable. Both throw ConfigError with the name of the flag if the text is invalid. Flags that several commands share
// are structs with an add_to() in the other headers of this folder: outputs, shape, costs, model, plan and hosts.
// config_file.h sets flags from TOML.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/choices.h"
#include "core/limits.h"

namespace chimera::apps {

/// Splits `list` at its commas. The results are views into `list`.
[[nodiscard]] std::vector<std::string_view> split_at_commas(std::string_view list);

/// Maximum number of values in a list.
inline constexpr std::size_t kMaxListed = 10'000;

/// Returns whether the text is a list (`4,8`), a range (`1..4`), or a multiple of D, the number of stages (`2D`).
[[nodiscard]] bool is_list(const std::string& text);

/// Parses a list of numbers and ranges, such as `4,8,16`, `1..4` or `1..4,8`. If `depth` is not 0, D stands for it:
/// `D`, `2D`, `D..4D` (in steps of D). Throws ConfigError for other texts, more than kMaxListed numbers, or a number
/// above 10^9.
[[nodiscard]] std::vector<std::int64_t> parse_count_list(const std::string& flag, const std::string& text,
                                                         std::int64_t depth = 0);

/// Parses numbers of at least `least`, such as `0,0.1,0.3`. Throws ConfigError for other texts and more than
/// kMaxListed numbers.
[[nodiscard]] std::vector<double> parse_number_list(const std::string& flag, const std::string& text, double least);

/// Throws ConfigError, naming `chimera sweep`, if the text is a list or a range.
void require_no_list(const std::string& flag, const std::string& text);

/// Parses texts such as 1000 or 1e3. Throws ConfigError for other texts.
[[nodiscard]] std::int64_t parse_count(const std::string& flag, const std::string& text);
/// Adds a flag that calls `take` with its text. `type` stands for the value in --help, for example FILE.
CLI::Option* add_text(CLI::App& app, const std::string& flag, std::function<void(const std::string&)> take,
                      const std::string& type, const std::string& description);
/// Adds a flag whose text parse_count() parses. This function and those below do not change the variable if the flag is
/// not given.
CLI::Option* add_count(CLI::App& app, const std::string& flag, std::int64_t& value, const std::string& description);
CLI::Option* add_count(CLI::App& app, const std::string& flag, std::optional<std::int64_t>& value,
                       const std::string& description);
/// Maximum of numeric flags; keeps sums and products finite.
inline constexpr double kMaxNumber = 1e100;
/// Parses a number from `least` to kMaxNumber. Throws ConfigError for other texts and numbers.
[[nodiscard]] double parse_amount(const std::string& flag, const std::string& text, double least = 0);

/// Adds a flag whose text parse_amount() parses.
CLI::Option* add_number(CLI::App& app, const std::string& flag, double& value, const std::string& description,
                        double least = 0);
CLI::Option* add_number(CLI::App& app, const std::string& flag, std::optional<double>& value,
                        const std::string& description);
/// Kind of a path; --help shows it as FILE or DIR.
enum class PathKind : std::uint8_t { File, Folder };
/// Adds a flag for a path, which throws ConfigError if the path is empty.
CLI::Option* add_path(CLI::App& app, const std::string& flag, std::string& path, const std::string& description,
                      PathKind kind = PathKind::File);
/// Adds a flag for a path of training data, or for several paths with weights (a mixture, data/mixture.h). The value
/// may be one or several words of the command line. The flag throws ConfigError if it is repeated, or has several words
/// without weights.
CLI::Option* add_data(CLI::App& app, const std::string& flag, std::string& data, const std::string& description);
/// Adds a flag that calls `take` with one of `names`. It also accepts the synonyms of name_for(), and throws
/// ConfigError for other words.
CLI::Option* add_word(CLI::App& app, const std::string& flag, std::vector<std::string> names,
                      std::function<void(const std::string&)> take, const std::string& description);
/// Adds a flag for one of the names of an enumeration (kNames). Accepts the same words as add_word().
template <NamedEnum Enum>
CLI::Option* add_choice(CLI::App& app, const std::string& flag, Enum& value, const std::string& description) {
  return add_word(
      app, flag, names_of<Enum>(), [&value, flag](const std::string& word) { value = parse_named<Enum>(flag, word); },
      description);
}
template <class Enum>
CLI::Option* add_choice(CLI::App& app, const std::string& flag, std::optional<Enum>& value,
                        const std::string& description) {
  return add_word(
      app, flag, names_of<Enum>(), [&value, flag](const std::string& word) { value = parse_named<Enum>(flag, word); },
      description);
}

/// Lets an option accept the beginning of a name instead of the name, such as `gpi` for gpipe. Does not change a word
/// that is a path: one with a slash or a dot, or the name of an existing file.
void complete_names(CLI::Option* option, std::vector<std::string> names);

/// Returns the name in `names` that `word` means: `word` itself, or the usual name for the synonyms bf16, fp32, float,
/// fp64, double and gpu. Throws ConfigError if there is none.
[[nodiscard]] std::string name_for(const std::string& flag, const std::string& word,
                                   const std::vector<std::string>& names);

/// Throws ConfigError if one of `flags` is given although it has no effect (`has_effect` is false). `purpose` is the
/// flag that they need. Example: `--keep is for --checkpoint; give that too, or leave it out`.
void require_effect(const CLI::App& command, std::initializer_list<const char*> flags, bool has_effect,
                    const char* purpose);

/// Prints a warning on standard error if `processes` processes on this host, with `threads` threads each, have more
/// threads together than cores. `flag` is the flag that set `threads`. Prints nothing for one thread per process.
void warn_about_surplus_threads(const char* flag, std::int64_t threads, std::int64_t processes);

}  // namespace chimera::apps
