#include "core/host_name.h"

#include <unistd.h>

#include <array>

namespace chimera {

std::string host_name() {
  // One byte is never written: a name that is cut may come without a final zero.
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace chimera
