#pragma once

#include <string>
#include <vector>

#include "launch/hosts/hosts.h"
#include "launch/local/process.h"

// One host's part of a job that `chimera launch --hosts` starts.

// Starts the parts of a job on several hosts, and ends them together.

namespace chimera {

/// Reads from `input` what to start, one line (PartOrder), starts these ranks as they are placed by variables, and
/// watches them. Further lines are numbers of signals for the part's first rank. Where one rank fails, or `input` ends
/// because the launcher is gone, or a signal comes, all are killed at once; a rank that dies without a word is named on
/// standard error. Returns the exit code: 0; kSavedExit; PeerLost where ranks have only lost others, else that of the
/// failure. Throws ConfigError where the line is none, Error where the system refuses a process.
[[nodiscard]] int run_part(int input);

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
