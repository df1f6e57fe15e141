#pragma once
// Starts the parts of a job on several hosts, and ends them together.

#include <string>
#include <vector>

#include "launch/hosts/hosts.h"
#include "launch/local/signal_inbox.h"

namespace chimera {

/// One host's process, which reads its order from standard input.
struct HostCommand {
  std::vector<std::string> words;  ///< the first is looked up in PATH
  PartOrder order;
};

/// How a start of a job has ended.
struct HostsEnding {
  int exit_code = 0;
  bool failed = false;         ///< because a host has, and not because SIGINT or a second signal ended it
  bool asked_to_save = false;  ///< a signal had asked it to save
};

/// Runs them. The exit code of the job: 0; kSavedExit; 128 + n after signal n; else that of the first host to
/// fail for a reason of its own, which is named on standard error, one line, behind what its rank has said. Then the
/// others' standard input is closed, on which they end (see run_part()): so they do where this process dies. The first
/// SIGTERM, SIGHUP or SIGUSR1 is passed on to rank 0, which saves where the run saves checkpoints; a second one, and
/// Ctrl-C, end everything.
///
/// Throws Error where the system refuses a process; those already started are ended then.
[[nodiscard]] HostsEnding run_on_hosts(const std::vector<HostCommand>& hosts, SignalInbox& signals);

}  // namespace chimera
