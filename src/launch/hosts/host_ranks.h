#pragma once

// The part of `chimera launch --hosts` that runs on each host: it starts this host's ranks, and ends all of them if one
// fails or the launcher is gone.

#include "launch/hosts/hosts.h"
#include "launch/local/process.h"

namespace chimera {

/// Waits for a line with a HostOrder. Throws ConfigError if the line is malformed or missing.
[[nodiscard]] HostOrder read_order(LineReader& lines);

/// Runs the ranks of this host for `chimera launch --hosts`. The descriptor `input` is a pipe from the launcher: its
/// first line is a HostOrder (hosts.h), and later lines are numbers of signals to send to the first rank. Kills all
/// ranks if a rank fails, if `input` ends because the launcher is gone, or if this process gets a signal. If a rank was
/// killed before it could report a failure, names it on stderr.
///
/// Returns 0, kSavedExit, the exit code of the failure, ExitCode::PeerLost if ranks only lost peers, or 128 + n after
/// signal n. Throws ConfigError if the first line is malformed, Error if the system refuses a process.
[[nodiscard]] int run_host_ranks(int input);

}  // namespace chimera
