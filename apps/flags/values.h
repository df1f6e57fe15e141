#pragma once

// How the text of a flag becomes a value: counts such as 1e3, numbers, lists and ranges, paths, words of an enum. Each
// add_ function adds one flag to a command; a text without meaning is a ConfigError that names the flag. Flags that
// several commands share are structs with an add_to() in the other headers of this folder: outputs, shape, costs,
// model, plan and hosts. config_file.h sets flags from TOML.

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

/// The results are views into `list`.
[[nodiscard]] std::vector<std::string_view> parts_of(std::string_view list);

inline constexpr std::size_t kMostListed = 10'000;

/// Returns whether the text is a list, a range, or a multiple of D.
[[nodiscard]] bool is_list(const std::string& text);

/// Parses a list of numbers and ranges, such as `4,8,16`, `1..4` or `1..4,8`. If `depth` is not 0, D stands for it:
/// `D`, `2D`, `D..4D` (in steps of D). Throws ConfigError for other texts, more than kMostListed numbers, or a number
/// above 10^9.
[[nodiscard]] std::vector<std::int64_t> parse_count_list(const std::string& flag, const std::string& text,
                                                         std::int64_t depth = 0);

/// Parses numbers of at least `least`, such as `0,0.1,0.3`. Throws ConfigError for other texts and more than
/// kMostListed numbers.
[[nodiscard]] std::vector<double> parse_number_list(const std::string& flag, const std::string& text, double least);

/// Throws ConfigError, naming `chimera sweep`, if the text is a list or a range.
void require_no_list(const std::string& flag, const std::string& text);

/// Parses texts such as 1000 or 1e3. Throws ConfigError for other texts.
[[nodiscard]] std::int64_t parse_count(const std::string& flag, const std::string& text);
/// The flag calls `take` with its text; `type` is the kind of value in --help.
CLI::Option* add_text(CLI::App& app, const std::string& flag, std::function<void(const std::string&)> take,
                      const std::string& type, const std::string& description);
CLI::Option* add_count(CLI::App& app, const std::string& flag, std::int64_t& value, const std::string& description);
CLI::Option* add_count(CLI::App& app, const std::string& flag, std::optional<std::int64_t>& value,
                       const std::string& description);
/// Maximum of numeric flags; keeps sums and products finite.
inline constexpr double kMostNumber = 1e100;
/// Parses a number from `least` to kMostNumber. Throws ConfigError for other texts and numbers.
[[nodiscard]] double parse_amount(const std::string& flag, const std::string& text, double least = 0);

CLI::Option* add_number(CLI::App& app, const std::string& flag, double& value, const std::string& description,
                        double least = 0);
CLI::Option* add_number(CLI::App& app, const std::string& flag, std::optional<double>& value,
                        const std::string& description);
enum class PathKind : std::uint8_t { File, Folder };
/// The flag throws ConfigError if the path is empty.
CLI::Option* add_path(CLI::App& app, const std::string& flag, std::string& path, const std::string& description,
                      PathKind kind = PathKind::File);
/// Adds a flag for a path or a mixture (data/mixture.h), in one or several words. The flag throws ConfigError if it is
/// repeated, or has several words without weights.
CLI::Option* add_data(CLI::App& app, const std::string& flag, std::string& data, const std::string& description);
/// The flag calls `take` with the value, and throws ConfigError for words outside `names`. bf16, fp32, float, fp64,
/// double and gpu stand for the names with the same meaning.
CLI::Option* add_word(CLI::App& app, const std::string& flag, std::vector<std::string> names,
                      std::function<void(const std::string&)> take, const std::string& description);
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

/// Lets an option take the beginning of a name for the name, such as `gpi` for gpipe. Paths and files that exist stay
/// as they are.
void complete_names(CLI::Option* option, std::vector<std::string> names);

/// Returns the name in `names` that the word stands for; bf16, fp32, float, fp64, double and gpu are other words for
/// names with the same meaning. Throws ConfigError if there is none.
[[nodiscard]] std::string name_for(const std::string& flag, const std::string& word,
                                   const std::vector<std::string>& names);

/// Throws ConfigError if one of the flags is given and `has_effect` is false: `--keep is for --checkpoint; give that
/// too, or leave it out`. `purpose` names the flag that gives them an effect.
void require_effect(const CLI::App& command, std::initializer_list<const char*> flags, bool has_effect,
                    const char* purpose);

/// Reports on standard error if `processes` processes of this host with `threads` threads each, more than one, are more
/// than the cores that they may use.
void report_surplus_threads(const char* flag, std::int64_t threads, std::int64_t processes);

}  // namespace chimera::apps
