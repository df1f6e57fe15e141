#include "core/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "core/error.h"
#include "core/file_descriptor.h"

namespace chimera {
namespace {

[[noreturn]] void fail(const std::string& path, int cause) {
  throw ConfigError(path + ": cannot be written (" + std::generic_category().message(cause) + ")");
}

bool is_replaced(const std::string& path) {
  std::error_code none;
  return !std::filesystem::exists(path, none) || std::filesystem::is_regular_file(path, none);
}

/// A new empty file beside `path`, open for writing, under a name that nobody has.
struct Unfinished {
  explicit Unfinished(const std::string& path) : name(path + ".unfinished") {
    constexpr int kNames = 1000;
    for (int i = 1; i <= kNames && !open(); ++i) name = path + ".unfinished-" + std::to_string(i);
    if (file.get() < 0) fail(path, errno);
  }

  std::string name;
  FileDescriptor file;

 private:
  /// False where the name is taken.
  bool open() {
    file = FileDescriptor(::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    return file.get() >= 0 || errno != EEXIST;
  }
};

/// The errno of a failure, or 0.
int write_all(const FileDescriptor& file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : ENOSPC;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

FileDescriptor open_existing(const std::string& path) {
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (file.get() < 0) fail(path, errno);
  return file;
}

}  // namespace

void write_whole(const std::string& path, const std::string& text) {
  if (!is_replaced(path)) {
    const int cause = write_all(open_existing(path), text);
    if (cause != 0) fail(path, cause);
    return;
  }
  const Unfinished unfinished(path);
  int cause = write_all(unfinished.file, text);
  if (cause == 0 && std::rename(unfinished.name.c_str(), path.c_str()) == 0) return;
  if (cause == 0) cause = errno;
  std::remove(unfinished.name.c_str());
  fail(path, cause);
}

void require_writable_whole(const std::string& path) {
  std::error_code none;
  if (std::filesystem::is_directory(path, none)) fail(path, EISDIR);
  if (!is_replaced(path)) {
    open_existing(path);
    return;
  }
  std::remove(Unfinished(path).name.c_str());
}

}  // namespace chimera
