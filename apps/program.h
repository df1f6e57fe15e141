#pragma once

// The main program around the subcommands (commands.h). main() calls run_program(); so does chimera_training_main(),
// the entry of the library with the commands that need LibTorch (training_half.h). run_program() adds the subcommands,
// detects whether a launcher started this process as a rank of a job, parses the command line and runs the chosen
// subcommand. It prints an error in one line and turns it into an exit code. Subcommands that run other subcommands
// (`demo`, `profile`, `sweep --train`) start the program again with run_this_program().

#include "commands.h"

namespace chimera::apps {

/// Result of run_this_program().
struct CommandResult {
  int exit_code = 0;   ///< 128 + signal, if a signal ended it
  std::string output;  ///< standard output
};

/// Runs this executable with the arguments `words` in a child process and waits for its end. The child inherits
/// standard error. Throws Error if no process can be started.
[[nodiscard]] CommandResult run_this_program(const std::vector<std::string>& words);

/// Returns `chimera` and the words as one line that a user can paste into a shell.
[[nodiscard]] std::string shell_command(const std::vector<std::string>& words);

/// Returns the line of a shell that trains with the flags `words`, for Contender::command (bench/contest.h).
[[nodiscard]] std::string training_command(const std::vector<std::string>& words);

/// Returns the path of a file that comes with chimera, such as `machines/p100-aries.json`: in the installation, or in
/// the source tree. Throws ConfigError if it is missing.
[[nodiscard]] std::string shipped_file(const std::string& name);

/// A shipped file of each kind, as an argument of shipped_names(). All files of a kind have the same folder and ending.
inline constexpr const char* kAMachine = "machines/h100-80gb.json";
inline constexpr const char* kARecipe = "recipes/gpt2.toml";
inline constexpr const char* kARecord = "benchmarks/records/paper-d4-n4.json";
/// Returns the names, without folder and ending, of all shipped files of the same kind as `any`, sorted. Throws as
/// shipped_file() does.
[[nodiscard]] std::vector<std::string> shipped_names(const std::string& any);

/// Return the path of a machine profile (measured speeds of a machine), a recipe (a file of training flags) or a record
/// (the best known schedule of a search problem). If `word` is a path or `-`, they return it unchanged. Else `word` is
/// the name of a file that comes with chimera, such as `h100-80gb`, or a unique beginning of such a name. Throw
/// ConfigError, which lists the names, for other words.
[[nodiscard]] std::string machine_file(const std::string& word);
[[nodiscard]] std::string recipe_file(const std::string& word);
[[nodiscard]] std::string record_file(const std::string& word);

/// Runs the subcommand in `argv` and returns the exit code. Calls `add_training` after adding the subcommands that need
/// no LibTorch: it adds the others, or only their names for the help. Some subcommands start rank processes. If `entry`
/// is set, the launcher may fork them from this process, and they call `entry` as their main(); chimera_training_main()
/// passes itself. Null: ranks start by exec (LaunchPlan::entry).
int run_program(int argc, char** argv, AddCommand& add_training, ProgramEntry entry = nullptr);

}  // namespace chimera::apps
