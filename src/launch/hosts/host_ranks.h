#pragma once

// The part of `chimera launch --hosts` that runs on each host: it starts this host's ranks, and ends all of them if one
// fails or the launcher is gone.

namespace chimera {

/// Runs the ranks of a host for `chimera launch --hosts`. Reads a line (HostOrder) from `input`; later lines are signal
/// numbers for its first rank. If a rank fails, `input` ends (the launcher is gone) or a signal comes, kills all ranks;
/// names a rank killed without a failure report on stderr. Returns 0, kSavedExit, the exit code of the failure,
/// ExitCode::PeerLost if ranks only lost peers, or 128 + n after signal n. Throws ConfigError if the line is malformed,
/// Error if the system refuses a process.
[[nodiscard]] int run_host_ranks(int input);

}  // namespace chimera
