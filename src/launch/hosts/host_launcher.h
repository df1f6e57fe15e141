#pragma once

// Runs one attempt of a job on several hosts (`chimera launch --hosts`). For each host, the launcher starts a command,
// usually ssh, that calls run_host_ranks() (host_ranks.h) on this host. It writes the host's HostOrder (the ranks of
// the host, their arguments and environment) to the standard input of the command. When it closes this input, the host
// kills its ranks. launch_on_hosts() (host_restarts.h) calls run_on_hosts() for each attempt.
//
//   launcher --ssh--> host a: run_host_ranks() --> ranks 0, 1
//            --ssh--> host b: run_host_ranks() --> ranks 2, 3

#include <string>
#include <vector>

#include "launch/hosts/hosts.h"
#include "launch/local/process.h"

namespace chimera {

/// Command that starts the ranks of a host.
struct HostCommand {
  std::vector<std::string> words;  ///< Command line; the first word is looked up in PATH
  HostOrder order;                 ///< Written to the standard input of the command
};

/// How an attempt ended.
struct HostsEnding {
  int exit_code = 0;
  bool failed = false;         ///< A host failed, and neither SIGINT nor a second signal ended the job
  bool asked_to_save = false;  ///< A signal was forwarded to rank 0, which saves a checkpoint
};

/// Runs the commands until all have ended. If a host fails, prints the name of the first host that failed for a reason
/// of its own (not because it lost a peer), then closes the standard inputs of all commands, which ends the hosts.
/// Forwards the first SIGTERM, SIGHUP, SIGUSR1 or SIGUSR2 to rank 0, which saves a checkpoint if the run has any.
/// SIGINT, or a second signal, ends all hosts. The death of this process ends them too.
///
/// The exit code is 0 after success, kSavedExit if the run saved after a signal, 128 + n if signal n ended it,
/// ExitCode::Usage if the failed host returned it, else ExitCode::No. Throws Error if the system refuses a process;
/// started processes are killed.
[[nodiscard]] HostsEnding run_on_hosts(const std::vector<HostCommand>& hosts, SignalInbox& signals);

}  // namespace chimera
