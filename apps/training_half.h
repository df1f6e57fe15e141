#pragma once
// The subcommands that need LibTorch, as the program in front sees them.

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace chimera::apps {

/// Whether the command line asks for what is in the training half: one of kTrainingCommands, `plan` with runs to
/// measure, `checkpoint convert`, or the reference of all flags.
[[nodiscard]] bool needs_training_half(const std::vector<std::string>& arguments);

/// Names and descriptions alone, for `chimera --help` and for suggestions.
void list_training_commands(CLI::App& program);

/// Loads libchimera_training.so, which lies beside the program or where `cmake --install` puts it, and runs the command
/// line there. Returns the exit code; where the library cannot be loaded, 1 after one line on standard error.
[[nodiscard]] int run_training_half(int argc, char** argv);

}  // namespace chimera::apps
