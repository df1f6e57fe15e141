#pragma once

// Flags from other sources than the command line: a TOML file (--config), a plan, or a launcher that passes all values
// to its ranks. If a flag is unknown, unknown_flag() suggests one. It maps flags of other programs, such as PyTorch and
// Megatron-LM, to ours.

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace chimera::apps {

/// Replaces earlier values. `name` has no dashes. Throws a CLI::Error or ConfigError, as on the command line, if the
/// flag rejects the value.
void set_flag(CLI::App& command, const std::string& name, const std::string& value);

/// Sets flags of `command` to the values of a TOML file, unless the command line gives them. Keys are flags without
/// dashes; values are strings, numbers or booleans (also for flags without a value). Throws ConfigError, with file and
/// line, for bad TOML, an unknown key, or a value of another type. Throws as set_flag() does if a flag rejects its
/// value.
void merge_config(CLI::App& command, const std::string& path);
/// The same for the text of a file; `path` appears only in messages.
void merge_config_text(CLI::App& command, const std::string& text, const std::string& path);

/// Returns arguments for a new command line that set the given flags of `command` to the same values.
[[nodiscard]] std::vector<std::string> given_words(const CLI::App& command);

/// Suggests flags with the same meaning (`--batch-size`: `--micro-batch-size`), or else the nearest name. `what` is
/// `flag`, with dashes before names, or `key`.
[[nodiscard]] std::string unknown_flag(const CLI::App& command, const std::string& what, const std::string& name);

}  // namespace chimera::apps
