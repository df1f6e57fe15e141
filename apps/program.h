#pragma once

// The main program around the subcommands (commands.h). main() and, in the library with LibTorch,
// chimera_training_main() call run_program(). It adds the subcommands, detects whether a launcher started this process
// as a rank, parses the command line and runs the chosen subcommand. It prints an error in one line and turns it into
// an exit code. Subcommands that run other subcommands (`demo`, `sweep --train`) start the program again with
// run_this_program().

#include <functional>
#include <string>
#include <vector>

#include "commands.h"

namespace chimera::apps {

struct CommandResult {
  int exit_code = 0;   ///< 128 + signal, if a signal ended it
  std::string output;  ///< standard output
};

/// Runs this executable with the arguments `words` in a child process and waits for its end. The child inherits
/// standard error. Throws Error if no process can be started.
[[nodiscard]] CommandResult run_this_program(const std::vector<std::string>& words);

/// Returns `chimera` and the words as one line that a user can paste into a shell.
[[nodiscard]] std::string shell_command(const std::vector<std::string>& words);

/// Returns the path of a file that comes with chimera, such as `machines/p100-aries.json`: in the installation, or in
/// the source tree. Throws ConfigError if it is missing.
[[nodiscard]] std::string shipped_file(const std::string& name);

/// Return the path of a machine profile or a recipe (a file of training flags). If `word` is a path or `-`, they return
/// it unchanged. Else `word` is the name of a file that comes with chimera, such as `h100-80gb`, or a unique beginning
/// of such a name. Throw ConfigError, which lists the names, for other words.
[[nodiscard]] std::string machine_file(const std::string& word);
[[nodiscard]] std::string recipe_file(const std::string& word);

/// Adds the subcommands that need LibTorch, or only their names for the help.
using AddTraining = std::function<void(CLI::App& program, const Invocation& invocation, int& exit_code)>;

/// Runs the subcommand in `argv` and returns the exit code. Calls `add_training` after adding the subcommands that need
/// no LibTorch. The launcher may fork ranks from this process; they then call `entry` instead of main().
/// chimera_training_main() passes itself as `entry`. Null: ranks start by exec (LaunchPlan::entry).
int run_program(int argc, char** argv, const AddTraining& add_training, ProgramEntry entry = nullptr);

}  // namespace chimera::apps
