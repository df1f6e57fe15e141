#include "transport/gloo/store_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace chimera {

StoreFile::StoreFile(const std::string& path) : descriptor_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
  if (descriptor_ < 0) {
    throw TransportError(fmt::format("cannot open '{}' for the ranks to meet: {}", path, std::strerror(errno)));
  }
}

StoreFile::~StoreFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::string StoreFile::path() const { return fmt::format("/proc/self/fd/{}", descriptor_); }

}  // namespace chimera
