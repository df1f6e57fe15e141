#include "support/synced.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <mutex>
#include <utility>

namespace {

std::mutex synced_mutex;              // NOLINT
std::vector<std::string> all_synced;  // NOLINT

}  // namespace

extern "C" int fsync(int file) {
  std::error_code closed;
  const auto path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(file), closed);
  const std::lock_guard lock(synced_mutex);
  all_synced.push_back(path.string());
  return static_cast<int>(::syscall(SYS_fsync, file));
}

std::vector<std::string> chimera::testing::take_synced_paths() {
  const std::lock_guard lock(synced_mutex);
  return std::exchange(all_synced, {});
}
