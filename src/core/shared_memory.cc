#include "core/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <functional>
#include <map>
#include <mutex>

#include "core/file_descriptor.h"

namespace chimera {
namespace {

/// Memory files that this process created, by first byte.
struct Made {
  std::mutex mutex;
  std::map<const std::byte*, const SharedMemory*, std::less<>> files;
};

// For shared_address(), which has nothing but a pointer.
Made& made() {
  static Made all;
  return all;
}

struct stat status_of(const FileDescriptor& file) {
  struct stat status {};
  check_system(::fstat(file.get(), &status), "get the size of shared memory");
  return status;
}

}  // namespace

SharedMemory::SharedMemory(std::size_t bytes) : file_(make_memory_file("chimera", bytes)), size_(bytes) {
  inode_ = static_cast<std::int64_t>(status_of(file_).st_ino);
  map();
  const std::scoped_lock lock(made().mutex);
  made().files[data_] = this;
}

// The other process may have closed the descriptor and reused its number, so the inode is compared.
SharedMemory::SharedMemory(const SharedAddress& address) {
  const std::string path = "/proc/" + std::to_string(address.process) + "/fd/" + std::to_string(address.descriptor);
  file_ = FileDescriptor(check_system(::open(path.c_str(), O_RDWR | O_CLOEXEC), "open shared memory " + path));
  const struct stat status = status_of(file_);
  inode_ = static_cast<std::int64_t>(status.st_ino);
  if (inode_ != address.file) throw Error("cannot open shared memory " + path + ": it is another file");
  size_ = static_cast<std::size_t>(status.st_size);
  map();
  file_ = {};  // A mapping needs no descriptor
}

void SharedMemory::map() {
  // mmap() refuses an empty mapping.
  if (size_ == 0) return;
  void* data = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  if (data == MAP_FAILED) check_system(-1, "map shared memory");
  data_ = static_cast<std::byte*>(data);
}

// A new mapping may have the address of an old one, so only the own entry is removed.
SharedMemory::~SharedMemory() {
  {
    const std::scoped_lock lock(made().mutex);
    const auto found = made().files.find(data_);
    if (found != made().files.end() && found->second == this) made().files.erase(found);
  }
  if (data_ != nullptr) ::munmap(data_, size_);
}

SharedAddress SharedMemory::address() const { return {::getpid(), file_.get(), inode_, 0}; }

// The file that begins at or before the address, if the address is inside of it.
std::optional<SharedAddress> shared_address(const void* address) {
  const auto* byte = static_cast<const std::byte*>(address);
  const std::scoped_lock lock(made().mutex);
  auto after = made().files.upper_bound(byte);
  if (after == made().files.begin()) return std::nullopt;
  const SharedMemory& memory = *std::prev(after)->second;
  const auto offset = static_cast<std::size_t>(byte - memory.data());
  if (offset >= memory.size()) return std::nullopt;
  SharedAddress found = memory.address();
  found.offset = static_cast<std::int64_t>(offset);
  return found;
}

}  // namespace chimera
