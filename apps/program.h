#pragma once

#include <functional>
#include <string>
#include <vector>

#include "commands.h"

// Runs this program again, with other words: what the demos do.

// The program from its command line to its exit code, whichever subcommands it has.

namespace chimera::apps {

struct CommandResult {
  int exit_code = 0;   ///< 128 and the signal where one ended it
  std::string output;  ///< on standard output
};

/// Runs `chimera WORDS...` to its end; what it says on standard error goes where this process's goes. Throws Error
/// where the system starts no process.
[[nodiscard]] CommandResult run_own(const std::vector<std::string>& words);

/// The words of a shell's line: quoted where it would change them.
[[nodiscard]] std::string shell_words(const std::vector<std::string>& words);
/// This program with these words, as a person types it.
[[nodiscard]] std::string as_typed(const std::vector<std::string>& words);

/// A file that the program comes with, `machines/p100-aries.json`: installed in share/chimera beside bin, or in the
/// sources above the folder that it was built in. Throws ConfigError where it is in neither.
[[nodiscard]] std::string shipped_file(const std::string& name);

/// Adds the subcommands of the training half, or what stands for them.
using AddTraining = std::function<void(CLI::App& program, const Invocation& invocation, int& exit_code)>;

/// Parses the command line, runs one subcommand, and turns errors into one line and an exit code, which it returns.
/// `entry`: what calls this, for ranks that are forked (LaunchPlan::entry).
int run_program(int argc, char** argv, const AddTraining& add_training, ProgramEntry entry = nullptr);

}  // namespace chimera::apps
