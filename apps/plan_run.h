#pragma once

// The measurement of `chimera plan --run`: trains with each of the best plans for a few steps, because their predicted
// times may differ by less than the error of the prediction. The runs alternate (bench/contest.h), so that a change of
// the machine's speed affects all of them. This file is apart from the rest of the command because only the
// measurement needs LibTorch.

#include <string>
#include <vector>

namespace chimera::apps {

/// Measures training runs of eight steps. `runs` has the flags of `chimera train` for each run. In each of three
/// rounds, every run is executed once, in order. Returns [run]: the median of the seconds per step over the rounds.
/// `data` is the path of a text file; empty: random letters. Throws ConfigError for invalid flags or in a build without
/// LibTorch, and Error if a run fails.
[[nodiscard]] std::vector<double> measured_steps(const std::vector<std::vector<std::string>>& runs,
                                                 const std::string& data);

}  // namespace chimera::apps
