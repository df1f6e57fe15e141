#pragma once
// One clock for all time differences: it is monotonic, and the same in all processes of a machine.

#include <chrono>
#include <cstdint>

namespace chimera {

/// Returns the seconds of the monotonic clock, the same in all processes of the machine.
[[nodiscard]] inline double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Returns the nanoseconds of the same clock. Async-signal-safe.
[[nodiscard]] inline std::int64_t monotonic_nanoseconds() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace chimera
