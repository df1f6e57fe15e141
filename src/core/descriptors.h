#pragma once
// How many files this process may have open at once.

#include <cstdint>
#include <string>

namespace chimera {

/// Raises the soft limit of open files (RLIMIT_NOFILE) to the hard one, for this process and those that it starts.
/// Throws ConfigError where that is below `needed`; `who` is what needs them and `remedy` what needs fewer: "4 ranks
/// need 40 open files ..., or use fewer ranks".
void require_descriptors(std::int64_t needed, const std::string& who, const std::string& remedy);

}  // namespace chimera
