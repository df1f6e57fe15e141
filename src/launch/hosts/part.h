#pragma once
// One host's part of a job that `chimera launch --hosts` starts.

namespace chimera {

/// Reads from `input` what to start, one line (PartOrder), starts these ranks as they are placed by variables, and
/// watches them. Further lines are numbers of signals for the part's first rank. Where one rank fails, or `input` ends
/// because the launcher is gone, or a signal comes, all are killed at once; a rank that dies without a word is named on
/// standard error. Returns the exit code: 0; kSavedExit; PeerLost where ranks have only lost others, else that of the
/// failure. Throws ConfigError where the line is none, Error where the system refuses a process.
[[nodiscard]] int run_part(int input);

}  // namespace chimera
