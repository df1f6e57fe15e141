#pragma once

// Flags for counts, numbers, paths and names of an enum's values. The add_ functions add one flag to a command, which
// parses its text (core/value_text.h) into the given variable. If the text is invalid, the parsing throws ConfigError
// with the name of the flag. flag_door.h adds all flags of a request, outputs.h and hosts.h flags that several commands
// share.

#include <CLI/CLI.hpp>
#include <functional>
#include <initializer_list>

#include "core/choices.h"
#include "core/limits.h"
#include "core/value_text.h"

namespace chimera::apps {

/// Adds a flag that calls `take` with its text. `type` stands for the value in --help, for example FILE.
CLI::Option* add_text(CLI::App& app, const std::string& flag, std::function<void(const std::string&)> take,
                      const std::string& type, const std::string& description);
/// Adds a flag whose text is the value. This function and those below do not change the variable if the flag is not
/// given. The variable of a count may be optional.
CLI::Option* add_string(CLI::App& app, const std::string& flag, std::string& value, const std::string& type,
                        const std::string& description);
/// Adds a flag for a whole number, also a negative one (parse_count()). The caller checks the range.
CLI::Option* add_count(CLI::App& app, const std::string& flag, auto& value, const std::string& description) {
  return add_text(
      app, flag, [&value, flag](const std::string& text) { value = parse_count(flag, text); }, "N", description);
}
/// Adds a flag whose text parse_amount() parses: a number that is at least `least`.
CLI::Option* add_number(CLI::App& app, const std::string& flag, double& value, const std::string& description,
                        double least = 0);
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

/// Lets an option accept the beginning of a name instead of the name, such as `gpi` for gpipe. Does not change a word
/// that is a path: one with a slash or a dot, or the name of an existing file.
void complete_names(CLI::Option* option, std::vector<std::string> names);

/// Throws ConfigError if one of `flags` is given although it has no effect (`has_effect` is false). `purpose` is the
/// flag that they need. Example: `--keep is for --checkpoint; give that too, or leave it out`.
void require_effect(const CLI::App& command, std::initializer_list<const char*> flags, bool has_effect,
                    const char* purpose);

/// Prints a warning on standard error if `processes` processes on this host, with `threads` threads each, have more
/// threads together than cores. `flag` is the flag that set `threads`. Prints nothing for one thread per process.
void warn_about_surplus_threads(const char* flag, std::int64_t threads, std::int64_t processes);

}  // namespace chimera::apps
