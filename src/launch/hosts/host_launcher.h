#pragma once

// Runs the ranks of one job attempt on several hosts (`chimera launch --hosts`). For each host it starts a command,
// usually ssh, that runs host_ranks.h there. The order of a host goes through the command's standard input; closing
// that input ends the host. host_restarts.h starts attempts after failures.
//
//   launcher --ssh--> host a: run_host_ranks() --> ranks 0, 1
//            --ssh--> host b: run_host_ranks() --> ranks 2, 3

#include <string>
#include <vector>

#include "launch/hosts/hosts.h"
#include "launch/local/process.h"

namespace chimera {

/// Command that starts the ranks of a host; it reads its order from standard input.
struct HostCommand {
  std::vector<std::string> words;  ///< Command line; the first word is looked up in PATH
  HostOrder order;
};

struct HostsEnding {
  int exit_code = 0;
  bool failed = false;         ///< A host failed, and neither SIGINT nor a second signal ended the job
  bool asked_to_save = false;  ///< A signal requested saving
};

/// Runs the commands. The exit code is 0, kSavedExit, 128 + n after signal n, ExitCode::Usage if the first failing host
/// returns it, else ExitCode::No. Names the first host with its own failure on stderr, after its rank's message. Then
/// closes all standard inputs, which ends the hosts, as the death of this process does. Forwards the first SIGTERM,
/// SIGHUP or SIGUSR1 to rank 0, which saves if the run has checkpoints; a second signal, or SIGINT, ends all hosts.
///
/// Throws Error if the system refuses a process; started processes are killed.
[[nodiscard]] HostsEnding run_on_hosts(const std::vector<HostCommand>& hosts, SignalInbox& signals);

}  // namespace chimera
