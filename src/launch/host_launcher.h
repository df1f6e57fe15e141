#pragma once
// Starts the parts of a job on several hosts, and ends them together.

#include <string>
#include <vector>

#include "launch/hosts.h"

namespace chimera {

/// One host's process, which reads its order from standard input.
struct HostCommand {
  std::vector<std::string> words;  ///< the first is looked up in PATH
  PartOrder order;
};

/// Runs them and returns the job's exit code: 0; kSavedExit; 128 + n after signal n; else that of the first host to
/// fail for a reason of its own, which is named on standard error, one line, behind what its rank has said. Then the
/// others' standard input is closed, on which they end (see run_part()): so they do where this process dies. The first
/// SIGTERM, SIGHUP or SIGUSR1 is passed on to rank 0, which saves where the run saves checkpoints; a second one, and
/// Ctrl-C, end everything.
///
/// Call it from the main thread, with no other thread running that takes signals. Throws Error where the system refuses
/// a process; those already started are ended then.
[[nodiscard]] int launch_on_hosts(const std::vector<HostCommand>& hosts);

}  // namespace chimera
