#include "data/data_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/error.h"

namespace chimera {
namespace {

[[noreturn]] void refuse_data(const std::string& path, const std::string& reason) {
  throw ConfigError(
      fmt::format("cannot read the corpus {}: {}; expected a UTF-8 text file, or one of tokens", path, reason));
}

FileDescriptor open_regular(const std::string& path) {
  // Non-blocking: to open a pipe would wait for its writer.
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) refuse_data(path, system_message(errno));
  struct stat status {};
  check_system(::fstat(file.get(), &status), "examine " + path);
  if (S_ISDIR(status.st_mode)) refuse_data(path, "it is a directory");
  if (!S_ISREG(status.st_mode)) refuse_data(path, "it is not a regular file");
  if (status.st_size == 0) refuse_data(path, "it is empty");
  return file;
}

}  // namespace

DataFile file_in_memory(std::span<const std::byte> bytes, const std::string& name) {
  FileDescriptor file(check_system(::memfd_create("chimera-tokens", MFD_CLOEXEC), "make a file in memory"));
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw Error("cannot keep the tokens of " + name + " in memory: " + system_message(errno));
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {std::move(file), name};
}

DataFile::DataFile(const std::string& path) : DataFile(open_regular(path), path) {}

DataFile::DataFile(FileDescriptor file, std::string name) : file_(std::move(file)), path_(std::move(name)) {
  size_ = state().size;
}

void DataFile::read(std::int64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(file_.get(), bytes.data(), bytes.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(fmt::format("cannot read {} at byte {}: {}", path_, offset, system_message(errno)));
    if (got == 0) {
      throw Error(
          fmt::format("{} has shrunk: it had {} bytes when the run began and ends at byte {} now; data must "
                      "stay as they are while a run reads them",
                      path_, size_, state().size));
    }
    bytes = bytes.subspan(static_cast<std::size_t>(got));
    offset += got;
  }
}

DataFile::State DataFile::state() const {
  constexpr std::int64_t kSecond = 1'000'000'000;
  struct stat status {};
  check_system(::fstat(file_.get(), &status), "examine " + path_);
  return {static_cast<std::int64_t>(status.st_dev), static_cast<std::int64_t>(status.st_ino), status.st_size,
          status.st_mtim.tv_sec * kSecond + status.st_mtim.tv_nsec, static_cast<std::int64_t>(status.st_nlink)};
}

}  // namespace chimera
