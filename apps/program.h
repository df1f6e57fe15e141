#pragma once
// The program from its command line to its exit code, whichever subcommands it has.

#include <functional>

#include "commands.h"

namespace chimera::apps {

/// Adds the subcommands of the training half, or what stands for them.
using AddTraining = std::function<void(CLI::App& program, const Invocation& invocation, int& exit_code)>;

/// Parses the command line, runs one subcommand, and turns errors into one line and an exit code, which it returns.
/// `entry`: what calls this, for ranks that are forked (LaunchPlan::entry).
int run_program(int argc, char** argv, const AddTraining& add_training, ProgramEntry entry = nullptr);

}  // namespace chimera::apps
