#pragma once
// The clock that measurements are in.

#include <chrono>

namespace chimera {

/// Seconds of this machine's monotonic clock, since a moment that all its processes share.
[[nodiscard]] inline double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace chimera
