#pragma once

// The measurement of `chimera plan --run`: trains the best plans for a few steps, because their predicted times may be
// closer together than the prediction's error. Runs take turns (bench/contest.h), so that a change of the machine's
// speed affects all of them. The command needs LibTorch only here, so this is a source of its own.

#include <string>
#include <vector>

namespace chimera::apps {

/// Measures training runs, for `chimera plan --run`. Each element of `runs` is the flags of one `chimera train` run of
/// eight steps. There are three rounds, and each round executes all runs once, in order. Returns the median seconds per
/// step of each run. `data` is the path of a text file; empty: random letters. Throws ConfigError without LibTorch or
/// for invalid flags, and Error if a run fails.
[[nodiscard]] std::vector<double> measured_steps(const std::vector<std::vector<std::string>>& runs,
                                                 const std::string& data);

}  // namespace chimera::apps
