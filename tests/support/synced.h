#pragma once
// What this process has made durable: the test's fsync() replaces that of the C library.

#include <string>
#include <vector>

namespace chimera::testing {

/// Returns the paths of all fsync() calls since the last call of this function, in order, as they were at the call.
std::vector<std::string> take_synced_paths();

}  // namespace chimera::testing
