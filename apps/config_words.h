#pragma once
// --config: the flags of a subcommand from a TOML file.

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace chimera::apps {

/// The file's keys as words of a command line. Each key is a flag of `command` without its dashes; its value a string,
/// a number, or true or false (of a flag that takes no value: whether it is given). Throws ConfigError with file and
/// line for bad TOML, an unknown key, with the nearest known one, and a value of another type.
[[nodiscard]] std::vector<std::string> config_words(const std::string& path, const CLI::App& command);
/// The same of the text of a file of that path.
[[nodiscard]] std::vector<std::string> config_words_of(const std::string& text, const std::string& path,
                                                       const CLI::App& command);

}  // namespace chimera::apps
