#pragma once

#include <string>

namespace chimera {

/// Returns the name of this host as gethostname() gives it; empty if that fails.
[[nodiscard]] std::string host_name();

}  // namespace chimera
