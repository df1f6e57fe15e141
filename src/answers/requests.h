#pragma once

// Limits of requests of the playground, a web page about pipeline schedules that sends requests as JSON.

#include <cstdint>

namespace chimera::playground {

/// Maximum number of ops in a schedule of the playground.
inline constexpr std::int64_t kMaxPlaygroundOps = 1'000'000;

}  // namespace chimera::playground
