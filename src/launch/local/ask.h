#pragma once
// Short commands whose answers are awaited for a limited time.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/local/process.h"

namespace chimera {

/// What a command has answered.
struct CommandReply {
  int exit_code = 0;   ///< 128 and the signal where one ended it
  std::string output;  ///< on standard output
  std::string errors;  ///< on standard error
  friend bool operator==(const CommandReply&, const CommandReply&) = default;
};

/// The last line that an answer's `errors` say, without this program's name.
[[nodiscard]] std::string last_line(std::string errors);

/// Runs commands side by side, with nothing on their standard input; the first word of each is looked up in PATH. Those
/// that still run after `patience`, or once the first `enough` have all answered with 0, are killed and have no reply;
/// so are those that run when a signal comes, which stays in the inbox. Throws Error where the system refuses a
/// process.
[[nodiscard]] std::vector<std::optional<CommandReply>> ask(const std::vector<std::vector<std::string>>& commands,
                                                           std::chrono::milliseconds patience,
                                                           const SignalInbox& signals, std::size_t enough = SIZE_MAX);

}  // namespace chimera
