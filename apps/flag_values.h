#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace chimera::apps {

/// Sets the flag `name` (without dashes) to `value`, replacing earlier values. Throws a CLI::Error or ConfigError, as
/// on the command line, if the flag rejects the value.
void set_flag(CLI::App& command, const std::string& name, const std::string& value);

/// Sets flags of `command` to the values of a TOML file, unless the command line gives them. Keys are flags without
/// dashes; values are strings, numbers or booleans (also for flags without a value). Throws ConfigError, with file and
/// line, for bad TOML, an unknown key, or a value of another type. Throws as set_flag() does if a flag rejects its
/// value.
void merge_config(CLI::App& command, const std::string& path);
void merge_config_text(CLI::App& command, const std::string& text, const std::string& path);

/// Returns the given flags as words of a command line. Parsing the words gives the same values.
[[nodiscard]] std::vector<std::string> given_words(const CLI::App& command);

}  // namespace chimera::apps
