#include "core/files.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <system_error>
#include <vector>

#include "core/file_descriptor.h"

namespace chimera {
namespace {

std::string read_all(std::istream& in, const std::string& name, std::size_t most) {
  std::string text;
  std::array<char, 1 << 16> block;
  while (in.read(block.data(), block.size()) || in.gcount() > 0) {
    text.append(block.data(), static_cast<std::size_t>(in.gcount()));
    // While reading, not from the file's size: a pipe has none.
    if (text.size() > most)
      throw ConfigError(name + ": is longer than " + std::to_string(most) + " bytes; give a file of at most as many");
  }
  if (in.bad()) throw ConfigError(name + ": cannot be read completely");
  return text;
}

[[noreturn]] void fail(const std::string& path, int cause) {
  const std::string what = path + ": cannot be written (" + std::generic_category().message(cause) + ")";
  if (cause == ENOSPC || cause == EDQUOT || cause == EIO) throw Error(what);  // Not the fault of the flags
  throw ConfigError(what);
}

bool is_replaced(const std::string& path) { return !path_exists(path) || is_file(path); }

// In the same folder, so that the rename is atomic: across file systems it would copy.
/// A new file next to `path`, with an unused name.
struct Unfinished {
  explicit Unfinished(const std::string& path) : name(path + ".unfinished") {
    // Other processes may be writing the same path, each to a file of its own; the last rename wins.
    constexpr int kNames = 1000;
    for (int i = 1; i <= kNames && !open(); ++i) name = path + ".unfinished-" + std::to_string(i);
    if (file.get() < 0) fail(path, errno);
  }

  std::string name;
  FileDescriptor file;

 private:
  /// Returns false if the name is in use.
  bool open() {
    file = FileDescriptor(::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    return file.get() >= 0 || errno != EEXIST;
  }
};

FileDescriptor open_existing(const std::string& path) {
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (file.get() < 0) fail(path, errno);
  return file;
}

/// Returns a status without a file if it cannot be told.
std::filesystem::file_status quiet_status(const std::filesystem::path& path) {
  std::error_code none;
  return std::filesystem::status(path, none);
}

std::filesystem::path parent_of(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  return parent.empty() ? "." : parent;
}

/// Returns the nearest existing folder above `path`.
std::filesystem::path nearest_parent(const std::string& path) {
  std::error_code error;
  std::filesystem::path place = std::filesystem::absolute(parent_of(path), error);
  // Folders in between are created by make_parent_folders(), so the nearest one that exists decides.
  while (!path_exists(place) && place.has_relative_path()) place = place.parent_path();
  return place;
}

}  // namespace

bool path_exists(const std::filesystem::path& path) { return std::filesystem::exists(quiet_status(path)); }

bool is_file(const std::filesystem::path& path) { return std::filesystem::is_regular_file(quiet_status(path)); }

bool is_folder(const std::filesystem::path& path) { return std::filesystem::is_directory(quiet_status(path)); }

std::string read_whole(const std::string& path, std::size_t most) {
  if (path == "-") return read_all(std::cin, "standard input", most);
  // A folder could be opened, too, and would fail only when it is read.
  if (is_folder(path)) throw ConfigError(path + ": is a directory; give a file, or - for standard input");
  std::ifstream file(path, std::ios::binary);
  if (!file) throw ConfigError(path + ": cannot be read (" + std::generic_category().message(errno) + ")");
  return read_all(file, path, most);
}

void make_parent_folders(const std::string& path) {
  std::error_code error;
  std::vector<std::filesystem::path> changed;  // Folders with a new name
  for (auto place = parent_of(path); !path_exists(place); place = parent_of(place)) changed.push_back(parent_of(place));
  std::filesystem::create_directories(parent_of(path), error);
  if (error) fail(path, error.value());
  for (const std::filesystem::path& folder : changed) {
    // Otherwise a crash of the machine could lose the folder with everything that is synced in it.
    ::fsync(FileDescriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)).get());
  }
}

void require_parents(const std::string& path) {
  const std::filesystem::path place = nearest_parent(path);
  if (!is_folder(place)) fail(path, ENOTDIR);
  if (::access(place.c_str(), W_OK | X_OK) != 0) fail(path, errno);
}

std::optional<std::uint64_t> free_bytes(const std::string& path) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(nearest_parent(path), error);
  return error ? std::nullopt : std::optional<std::uint64_t>(space.available);
}

// A terminal or pipe may be non-blocking without this process's doing, so EAGAIN waits for room instead of failing.
int write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written > 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (written == 0) {
      return ENOSPC;
    } else if (errno == EAGAIN) {
      pollfd room{descriptor, POLLOUT, 0};
      ::poll(&room, 1, -1);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

// Links and different spellings name one file. A file that does not exist yet has no inode to compare.
bool is_same_file(const std::string& one, const std::string& other) {
  std::error_code error;
  if (one == other || std::filesystem::equivalent(one, other, error)) return true;
  const auto resolved = [&error](const std::string& path) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(path, error), error);
  };
  const std::filesystem::path first = resolved(one);
  return !error && first == resolved(other) && !error;
}

void require_unused(const std::string& flag, const std::string& path, bool overwrites) {
  std::error_code absent;
  if (overwrites || !is_file(path) || std::filesystem::is_empty(path, absent)) return;
  throw ConfigError(flag + " " + path + ": exists already; give another file, or --overwrite");
}

// A rename replaces the old file at once, so readers see the old text or the new one. Pipes and devices cannot be
// replaced; they are written in place.
void write_whole(const std::string& path, const std::string& text) {
  if (!is_replaced(path)) {
    const int cause = write_all(open_existing(path).get(), text);
    if (cause != 0) fail(path, cause);
    return;
  }
  make_parent_folders(path);
  // The file is not synced, so a crash of the machine may lose it. Checkpoints and exports, which must survive that,
  // have writers of their own.
  const Unfinished unfinished(path);
  int cause = write_all(unfinished.file.get(), text);
  if (cause == 0 && std::rename(unfinished.name.c_str(), path.c_str()) == 0) return;
  if (cause == 0) cause = errno;
  std::remove(unfinished.name.c_str());
  fail(path, cause);
}

// The only certain test is to make the file. It has another name and is removed at once.
void require_writable_whole(const std::string& path) {
  if (is_folder(path)) fail(path, EISDIR);
  if (!is_replaced(path)) {
    open_existing(path);
    return;
  }
  require_parents(path);
  if (is_folder(parent_of(path))) std::remove(Unfinished(path).name.c_str());
}

TemporaryFolder::TemporaryFolder() {
  std::error_code error;
  std::string pattern = (std::filesystem::temp_directory_path(error) / "chimera-XXXXXX").string();
  if (!error && ::mkdtemp(pattern.data()) == nullptr) error = {errno, std::generic_category()};
  if (error)
    throw ConfigError("a folder for temporary files cannot be made (" + error.message() +
                      "); set TMPDIR to a folder that can be written");
  folder_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace chimera
