#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace chimera::apps {

/// Returns the flags of a TOML file as words of a command line. Keys are flags of `command` without dashes; values are
/// strings, numbers or booleans (also for flags without a value). Throws ConfigError, with file and line, for bad TOML,
/// an unknown key, or a value of another type.
[[nodiscard]] std::vector<std::string> config_words(const std::string& path, const CLI::App& command);
[[nodiscard]] std::vector<std::string> config_words_of(const std::string& text, const std::string& path,
                                                       const CLI::App& command);

}  // namespace chimera::apps
