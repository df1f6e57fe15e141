#pragma once

#include <string>
#include <vector>

namespace chimera::apps {

/// Returns the median seconds per step of training runs with these flags, which alternate. Throws ConfigError without
/// LibTorch, or for invalid flags. `data`: a text file; empty: random letters.
[[nodiscard]] std::vector<double> measured_steps(const std::vector<std::vector<std::string>>& runs,
                                                 const std::string& data);

}  // namespace chimera::apps
