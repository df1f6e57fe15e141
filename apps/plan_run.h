#pragma once
// Plans measured: training runs of some candidates, taking turns.

#include <string>
#include <vector>

namespace chimera::apps {

/// Median step time of each run, of flags of `chimera train` beside --data, in seconds. Without LibTorch, and with it
/// where a run would be refused, throws ConfigError. `data`: a text; empty: random letters.
[[nodiscard]] std::vector<double> measured_steps(const std::vector<std::vector<std::string>>& runs,
                                                 const std::string& data);

}  // namespace chimera::apps
