#pragma once

// Runs several commands at once and collects their output. The launcher of hosts tests with it whether hosts answer,
// and whether a smaller layout is possible.

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "launch/local/process.h"

namespace chimera {

struct CommandReply {
  int exit_code = 0;  ///< 128 + signal number after a signal
  std::string output;
  std::string errors;
  friend bool operator==(const CommandReply&, const CommandReply&) = default;
};

/// Returns the last line of `errors` without "chimera: ".
[[nodiscard]] std::string last_line(std::string errors);

/// Runs commands concurrently with empty standard input; looks first words up in PATH. Kills commands, which then have
/// no reply, after `patience`, after a signal (which stays in the inbox), or once the first `enough` commands have
/// succeeded. Throws Error if the system refuses a process.
[[nodiscard]] std::vector<std::optional<CommandReply>> run_commands(
    const std::vector<std::vector<std::string>>& commands, std::chrono::milliseconds patience,
    const SignalInbox& signals, std::size_t enough = SIZE_MAX);

}  // namespace chimera
