#pragma once

// The commands that need LibTorch, in libchimera_training.so. The program loads the library only for them, because it
// takes half a second to load; all other commands start in milliseconds.

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace chimera::apps {

/// Returns whether a command line needs LibTorch: commands of kTrainingCommands, `plan --run`, and `reference`.
[[nodiscard]] bool needs_training_half(const std::vector<std::string>& arguments);

/// Adds the training commands by name and description only, for `chimera --help` and suggestions.
void list_training_commands(CLI::App& program);

/// Runs the command line in libchimera_training.so. Returns the exit code, or 1 after a message if the library cannot
/// be loaded.
[[nodiscard]] int run_training_half(int argc, char** argv);

}  // namespace chimera::apps
