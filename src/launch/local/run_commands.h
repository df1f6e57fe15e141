#pragma once

// Runs several commands at once and collects their output. Before a restart on several hosts,
// launch/hosts/host_restarts.h tests with it whether hosts answer, and whether the job can continue on fewer ranks.

#include "launch/local/process.h"

namespace chimera {

/// Exit code and output of a command.
struct CommandReply {
  int exit_code = 0;   ///< 128 + signal number after a signal
  std::string output;  ///< Standard output
  std::string errors;  ///< Standard error
  friend bool operator==(const CommandReply&, const CommandReply&) = default;
};

/// Returns the last line of `errors`, without "chimera: " at its start.
[[nodiscard]] std::string last_line(std::string errors);

/// Runs the commands concurrently with empty standard input, and returns their replies. A first word without a slash is
/// looked up in PATH. Returns when all commands have ended; earlier after `timeout`, after a signal (which stays in
/// the inbox), or once the first `enough` commands have all succeeded. It then kills the other commands, which have no
/// reply (nullopt). Throws Error if the system refuses a process.
[[nodiscard]] std::vector<std::optional<CommandReply>> run_commands(
    const std::vector<std::vector<std::string>>& commands, std::chrono::milliseconds timeout,
    const SignalInbox& signals, std::size_t enough = SIZE_MAX);

}  // namespace chimera
