#pragma once

#include <unistd.h>

#include <array>
#include <string>

namespace chimera {

/// Returns the name of this host as gethostname() gives it; empty if that fails.
[[nodiscard]] inline std::string host_name() {
  // One byte is never written: a name that is cut may come without a final zero.
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace chimera
