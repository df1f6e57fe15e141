#include "checkpoint/disk.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "core/file_descriptor.h"

namespace chimera {
namespace {

[[noreturn]] void fail_to_write(const std::string& path, int cause) {
  throw CheckpointError(fmt::format("{}: cannot be written ({})", path, system_message(cause)));
}

/// Returns the result of a system call unless it is negative.
int require_success(int result, const std::string& path) {
  if (result < 0) fail_to_write(path, errno);
  return result;
}

}  // namespace

bool Disk::make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) == 0) return true;
  if (errno != EEXIST) fail_to_write(path, errno);
  return false;
}

int Disk::create(const std::string& path) {
  return require_success(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666), path);
}

int Disk::open(const std::string& path) { return require_success(::open(path.c_str(), O_WRONLY | O_CLOEXEC), path); }

std::size_t Disk::write(int file, std::uint64_t offset, std::span<const std::byte> bytes, const std::string& path) {
  while (true) {
    const ssize_t written = ::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written > 0) return static_cast<std::size_t>(written);
    // A write may do nothing without an error; the loop in OpenFile would then never end.
    if (written == 0) fail_to_write(path, ENOSPC);
    if (errno != EINTR) fail_to_write(path, errno);
  }
}

void Disk::sync(int file, const std::string& path) { require_success(::fsync(file), path); }

void Disk::close(int file) noexcept { ::close(file); }

void Disk::sync_folder(const std::string& path) {
  // fsync() works on folders, too: it writes their names.
  const FileDescriptor folder(require_success(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC), path));
  require_success(::fsync(folder.get()), path);
}

void Disk::rename(const std::string& from, const std::string& to) {
  require_success(std::rename(from.c_str(), to.c_str()), to);
}

// Older kernels and some network file systems have no exchange; the caller then removes and renames.
bool Disk::exchange(const std::string& one, const std::string& other) {
  if (::renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) fail_to_write(other, errno);
  return false;
}

void Disk::remove_file(const std::string& path) { require_success(::unlink(path.c_str()), path); }

void Disk::remove_folder(const std::string& path) { require_success(::rmdir(path.c_str()), path); }

Disk& real_disk() {
  static Disk disk;
  return disk;
}

void write_file(Disk& disk, const std::string& path, const std::string& text) {
  OpenFile file(disk, path);
  file.write(std::as_bytes(std::span(text)));
  file.sync();
}

void replace_file(Disk& disk, const std::string& folder, const std::string& name, const std::string& text) {
  const std::string path = folder + "/" + name;
  write_file(disk, path + ".tmp", text);
  disk.rename(path + ".tmp", path);
  disk.sync_folder(folder);
}

// Lists the files before it removes any: a listing while entries disappear may skip some.
void remove_with_files(Disk& disk, const std::string& folder) {
  std::error_code error;
  if (std::filesystem::is_symlink(folder, error)) return disk.remove_file(folder);
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) files.push_back(entry.path().string());
  for (const std::string& file : files) disk.remove_file(file);
  disk.remove_folder(folder);
}

}  // namespace chimera
