#pragma once

// Limits of requests of the playground, a web page about pipeline schedules that sends requests as JSON.

#include <cstdint>

namespace chimera::playground {

/// Maximum number of ops in a schedule of the playground.
inline constexpr std::int64_t kMaxPlaygroundOps = 1'000'000;
inline constexpr std::int64_t kFollowEffort = 1'500'000;  // LostRequest::effort, for answers in 100 ms

}  // namespace chimera::playground
