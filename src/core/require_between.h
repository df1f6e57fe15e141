#pragma once

#include <cstdint>
#include <string>

#include "core/error.h"

namespace chimera {

/// Throws ConfigError, naming `flag`, unless `value` is `least` to `most`.
inline void require_between(const std::string& flag, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return;
  throw ConfigError(flag + " must be " + std::to_string(least) + " to " + std::to_string(most) + ", not " +
                    std::to_string(value));
}

}  // namespace chimera
