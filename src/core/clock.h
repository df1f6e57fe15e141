#pragma once
// The clock that measurements are in.

#include <chrono>
#include <cstdint>

namespace chimera {

/// Seconds of this machine's monotonic clock, since a moment that all its processes share.
[[nodiscard]] inline double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The same in nanoseconds. May be called in signal handlers.
[[nodiscard]] inline std::int64_t monotonic_nanoseconds() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace chimera
