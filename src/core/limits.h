#pragma once
// A limit that several flags share, and the check that a value is within its limits.

#include <cstdint>
#include <string_view>

#include "core/reject.h"

namespace chimera {

/// Maximum number of intra-op threads of a rank.
inline constexpr std::int64_t kMaxThreads = 1024;

/// Throws ConfigError unless the value of `flag` is `least` to `most`.
inline void require_between(std::string_view flag, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return;
  reject("{} must be {} to {}, not {}", flag, least, most, value);
}

}  // namespace chimera
