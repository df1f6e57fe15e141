#include "safetensors/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/reject.h"

namespace chimera {
namespace {

[[noreturn]] void fail_to_read(const std::string& path, int cause) {
  reject("{}: cannot be read ({})", path, system_message(cause));
}

}  // namespace

RegularFile::RegularFile(std::string path)
    : path_(std::move(path)),
      file_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {  // a pipe without a writer must not block
  struct stat status {};
  if (file_.get() < 0 || ::fstat(file_.get(), &status) != 0) fail_to_read(path_, errno);
  if (!S_ISREG(status.st_mode)) throw ConfigError(path_ + ": is not a regular file");
  // Readers check positions against this size once, so a later cut is an error of read().
  bytes_ = static_cast<std::uint64_t>(status.st_size);
}

void RegularFile::read(std::uint64_t offset, std::span<std::byte> into) const {
  while (!into.empty()) {
    // pread() has no position of its own, so threads can share the file.
    const ssize_t got = ::pread(file_.get(), into.data(), into.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_to_read(path_, errno);
    // The header was checked against the size when opened.
    if (got == 0)
      reject("{}: had {} bytes and now ends at byte {}: it was cut off while it was read", path_, bytes_, offset);
    into = into.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
}

}  // namespace chimera
