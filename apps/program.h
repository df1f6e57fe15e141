#pragma once

#include <functional>
#include <string>
#include <vector>

#include "commands.h"

namespace chimera::apps {

struct CommandResult {
  int exit_code = 0;   ///< 128 + signal, if a signal ended it
  std::string output;  ///< standard output
};

/// Runs `chimera WORDS...`; standard error is inherited. Throws Error if no process can be started.
[[nodiscard]] CommandResult run_own(const std::vector<std::string>& words);

[[nodiscard]] std::string shell_words(const std::vector<std::string>& words);
/// Returns the shell line that runs this program.
[[nodiscard]] std::string as_typed(const std::vector<std::string>& words);

/// Returns the path of a shipped file such as `machines/p100-aries.json`, installed or in the sources. Throws
/// ConfigError if it is missing.
[[nodiscard]] std::string shipped_file(const std::string& name);

/// Returns the file of a machine profile: `word` if it is a path or `-`, or the shipped profile of that name, such as
/// h100-80gb. Throws ConfigError, with the shipped names, for another name.
[[nodiscard]] std::string machine_file(const std::string& word);

/// Adds the training subcommands or their placeholders.
using AddTraining = std::function<void(CLI::App& program, const Invocation& invocation, int& exit_code)>;

/// Runs a command line and returns the exit code. Prints an error in one line. `entry` is the caller, in which forked
/// ranks start (LaunchPlan::entry).
int run_program(int argc, char** argv, const AddTraining& add_training, ProgramEntry entry = nullptr);

}  // namespace chimera::apps
