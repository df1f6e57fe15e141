#include "core/file_descriptor.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstdlib>

#include "core/reject.h"

namespace chimera {

void require_descriptors(std::int64_t needed, const std::string& who, const std::string& remedy) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  if (limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  if (limit.rlim_cur >= static_cast<rlim_t>(needed)) return;
  reject("{} need {} open files in one process, but the limit is {}; raise it (ulimit -Hn), or {}", who, needed,
         limit.rlim_cur, remedy);
}

namespace {

/// Returns nothing if the folder does not support unnamed files or lacks space.
FileDescriptor make_nameless_file(const std::string& folder, std::size_t bytes) {
  FileDescriptor file(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file.get() < 0 || bytes == 0) return file;
  // Reserves the space now: on a full disk, a write to the mapping would end the process by SIGBUS.
  return ::posix_fallocate(file.get(), 0, static_cast<off_t>(bytes)) == 0 ? std::move(file) : FileDescriptor();
}

bool is_refusal(int error) { return error == EPERM || error == EACCES || error == ENOSYS; }

}  // namespace

FileDescriptor make_memory_file(const char* name, std::size_t bytes) {
  const std::string action = "make shared memory of " + std::to_string(bytes) + " bytes";
  FileDescriptor file(::memfd_create(name, MFD_CLOEXEC));
  // Before the next call, which may change it.
  const int error = errno;
  if (file.get() >= 0) {
    check_system(::ftruncate(file.get(), static_cast<off_t>(bytes)), action);
    return file;
  }
  if (is_refusal(error)) {
    const char* temporary = std::getenv("TMPDIR");
    for (const std::string& folder :
         {std::string("/dev/shm"), std::string(temporary == nullptr ? "/tmp" : temporary)}) {
      file = make_nameless_file(folder, bytes);
      if (file.get() >= 0) return file;
    }
  }
  throw Error("cannot " + action + ": " + system_message(error));
}

}  // namespace chimera
