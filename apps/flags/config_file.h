#pragma once

// Flags that do not come from the command line. merge_config() reads them from a TOML file (--config). set_flag() sets
// one flag, for example to the value of a plan. given_arguments() writes the given flags as a new command line, which
// the launcher passes to its ranks. unknown_flag() writes the error message for a flag that does not exist.

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace chimera::apps {

/// Sets the flag `name` (without dashes) of `command` to `value`, and removes its earlier values. Throws CLI::Error or
/// ConfigError, as for the command line, if the flag rejects the value.
void set_flag(CLI::App& command, const std::string& name, const std::string& value);

/// Sets flags of `command` to the values of a TOML file. Flags that are already given on the command line keep their
/// values. Keys are the names of flags without dashes. Values are strings, numbers, booleans or lists of them; a flag
/// that takes no value needs `true` or `false`. Throws ConfigError if the file cannot be read, and, with file and line,
/// for bad TOML, an unknown key, or a value of another type. Throws CLI::Error or ConfigError if a flag rejects its
/// value.
void merge_config(CLI::App& command, const std::string& path);
/// Does the same as merge_config() with the text of a file. `path` appears only in messages.
void merge_config_text(CLI::App& command, const std::string& text, const std::string& path);

/// Returns the flags of `command` that have been given, with their values, as arguments of a new command line. The
/// flags of a merged file count as given.
[[nodiscard]] std::vector<std::string> given_arguments(const CLI::App& command);

/// Returns the given flags, except --dry-run and --format, as the text of a file for merge_config().
[[nodiscard]] std::string to_toml(const CLI::App& command);

/// Returns the error message for the unknown flag or key `name`, for example `unknown flag '--lr'; did you mean
/// '--learning-rate'?`. It suggests the flags of `command` that have this meaning in PyTorch, Megatron-LM and similar
/// programs, else the flag with the nearest name, else --help-all. `what` is `flag` (names appear with dashes) or `key`
/// (without).
[[nodiscard]] std::string unknown_flag(const CLI::App& command, const std::string& what, const std::string& name);

}  // namespace chimera::apps
