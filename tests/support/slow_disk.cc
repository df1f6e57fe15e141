// Preloaded into a program (LD_PRELOAD): each of its fsync() calls takes SLOW_DISK_SECONDS longer, like on a slow disk.

#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

extern "C" int fsync(int file) {
  const char* seconds = std::getenv("SLOW_DISK_SECONDS");
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds == nullptr ? 0 : std::atof(seconds)));
  return static_cast<int>(::syscall(SYS_fsync, file));
}
