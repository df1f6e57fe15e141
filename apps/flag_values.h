#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace chimera::apps {

/// Gives a flag, named without dashes, a value in place of any earlier one. Throws as the parser of the command line
/// does if the flag rejects the value.
void set_flag(CLI::App& command, const std::string& name, const std::string& value);

/// Gives flags of `command` the values of a TOML file, unless the command line gives them. Keys are flags without
/// dashes; values are strings, numbers or booleans (also for flags without a value). Throws ConfigError, with file and
/// line, for bad TOML, an unknown key, or a value of another type, and as set_flag() does.
void merge_config(CLI::App& command, const std::string& path);
void merge_config_text(CLI::App& command, const std::string& text, const std::string& path);

/// Returns the given flags as words of a command line, which parses to the same values.
[[nodiscard]] std::vector<std::string> given_words(const CLI::App& command);

}  // namespace chimera::apps
