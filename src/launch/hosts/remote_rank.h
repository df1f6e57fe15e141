#pragma once

// Ranks of `chimera launch --hosts`, supervised like ranks of one host (launch/local/supervisor.h). The same code thus
// decides about failures, signals, recoveries and restarts. In place of each rank, the launcher starts a *relay* on its
// own machine. The relay starts an *agent* on the rank's host, usually by ssh, and the agent starts the rank. Both pass
// on what launcher and rank exchange: orders, signals, reports, progress, output and the end. A relay ends as its rank
// does, so a lost host is a loss of its ranks. The relay of a replacement waits until the host answers.
//
//   launcher --> relay --ssh--> host b: agent --> rank 2

#include "launch/hosts/hosts.h"
#include "launch/local/launcher.h"
#include "launch/local/rank.h"

namespace chimera {

/// Makes launch() (launcher.h) start relays for the ranks of `plan`. Before each attempt, HostAttempts
/// (host_restarts.h) chooses the hosts: after a restart, spare hosts replace those that do not answer. Throws
/// ConfigError if the hosts have another number of ranks, or if the plan has both restarts and recoveries.
void use_relays(LaunchPlan& plan, RemoteJob job);

/// Runs the relay of a rank until the rank ends, and returns its exit code. If a signal has killed the rank, kills this
/// process with the same signal. If the connection ends, or the host is silent for two seconds (10 if the job does not
/// recover), reports a failure. SIGTERM kills the rank, and the relay waits for its end.
[[nodiscard]] int run_relay(const RankEnvironment& self);

/// Runs the agent of a rank until the rank ends, and returns 0; a message tells the relay how the rank ended. `input`
/// is a pipe from the relay: its first line is an AgentOrder; later lines are orders and signals. If `input` ends,
/// kills the rank and returns ExitCode::PeerLost.
[[nodiscard]] int run_agent(int input);

}  // namespace chimera
