#pragma once

#include <string>

namespace chimera {

/// Returns the name of this host; empty if the system does not tell it.
[[nodiscard]] std::string host_name();

}  // namespace chimera
