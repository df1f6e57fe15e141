#pragma once

// The commands that need LibTorch, such as `train`, are in libchimera_training.so, the *training half* of the program.
// main() loads the library only for these commands, because it takes half a second to load. All other commands start in
// milliseconds.

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "commands.h"

namespace chimera::apps {

/// Returns whether a command line needs LibTorch: kTrainingCommands (commands.h) and `reference`.
/// `arguments` do not include the name of the program.
[[nodiscard]] bool needs_training_half(const std::vector<std::string>& arguments);

/// Adds kTrainingCommands by name and description only, so that `chimera --help` and suggestions for misspelled
/// commands list them.
AddCommand list_training_commands;

/// Runs the command line in libchimera_training.so. Returns the exit code, or 1 after a message if the library cannot
/// be loaded.
[[nodiscard]] int run_training_half(int argc, char** argv);

}  // namespace chimera::apps
