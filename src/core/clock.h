#pragma once
// The clock for all time differences. It is monotonic, and all processes of a machine share it.

#include <chrono>
#include <cstdint>

namespace chimera {

/// Returns the time in seconds. The origin is arbitrary.
[[nodiscard]] inline double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Returns a duration in seconds as milliseconds, rounded up.
[[nodiscard]] inline std::chrono::milliseconds to_milliseconds(double seconds) {
  return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
}

/// Returns the time of the same clock in nanoseconds. Async-signal-safe.
[[nodiscard]] inline std::int64_t monotonic_nanoseconds() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace chimera
