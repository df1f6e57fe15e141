#pragma once

// The program around the subcommands: parsing, errors in one line with an exit code, and the place of this process
// among the ranks of a launcher. Commands that run other commands (`demo`, `sweep --train`) start this program again.

#include <functional>
#include <string>
#include <vector>

#include "commands.h"

namespace chimera::apps {

struct CommandResult {
  int exit_code = 0;   ///< 128 + signal, if a signal ended it
  std::string output;  ///< standard output
};

/// Standard error is inherited. Throws Error if no process can be started.
[[nodiscard]] CommandResult run_own(const std::vector<std::string>& words);

[[nodiscard]] std::string shell_words(const std::vector<std::string>& words);
/// Returns the shell line that runs this program.
[[nodiscard]] std::string as_typed(const std::vector<std::string>& words);

/// Example: `machines/p100-aries.json`, installed or in the sources. Throws ConfigError if it is missing.
[[nodiscard]] std::string shipped_file(const std::string& name);

/// Returns `word` if it is a path or `-`, or the shipped profile of that name, such as h100-80gb. Throws ConfigError,
/// with the shipped names, for another name.
[[nodiscard]] std::string machine_file(const std::string& word);

using AddTraining = std::function<void(CLI::App& program, const Invocation& invocation, int& exit_code)>;

/// Prints an error in one line. `entry` is the caller, in which forked ranks start (LaunchPlan::entry). Returns the
/// exit code.
int run_program(int argc, char** argv, const AddTraining& add_training, ProgramEntry entry = nullptr);

}  // namespace chimera::apps
