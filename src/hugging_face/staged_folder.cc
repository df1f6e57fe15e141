#include "hugging_face/staged_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "core/console.h"
#include "core/error.h"
#include "core/files.h"
#include "core/printable.h"
#include "core/reject.h"
#include "safetensors/weight_files.h"

// An export in progress is a folder NAME.unfinished-N next to its final place, locked by flock(). The lock goes with
// the process, also when it is killed, so a folder without a lock is a leftover, which the next export removes.
// commit() renames the folder once all is on the disk. Other ranks write into it, too: they get N, not the lock.

namespace chimera {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUnfinished = ".unfinished-";

[[noreturn]] void fail_to_write(const std::string& path, int cause) {
  reject("{}: cannot be written ({})", path, system_message(cause));
}

/// Limit of unsynced data, for a fast finish().
constexpr std::uint64_t kMaxUnsyncedBytes = 64 << 20;

std::string without_slash(std::string folder) {
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  return folder;
}

fs::path parent_of(const std::string& folder) {
  const fs::path parent = fs::path(without_slash(folder)).parent_path();
  return parent.empty() ? "." : parent;
}

bool is_on_other_file_system(const std::string& folder, const fs::path& other) {
  struct stat here {};
  struct stat there {};
  return ::stat(folder.c_str(), &here) == 0 && ::stat(other.c_str(), &there) == 0 && here.st_dev != there.st_dev;
}

void require_free_place(const std::string& folder) {
  std::error_code error;
  const std::string name = fs::path(without_slash(folder)).filename().string();
  if (name.empty() || name == "." || name == "..") reject("{}: is not a valid name for a new folder", folder);
  const fs::file_status status = fs::symlink_status(without_slash(folder), error);
  if (!fs::exists(status)) return;
  if (!fs::is_directory(status) || !fs::is_empty(folder, error)) {
    reject("{}: exists already; give a new folder", folder);
  }
  // No rename can replace a mount point.
  if (is_on_other_file_system(folder, parent_of(folder))) {
    reject("{}: a file system is mounted there; give a new folder in it", folder);
  }
}

void sync(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0 || ::fsync(file.get()) != 0) fail_to_write(path, errno);
}

FileDescriptor open_folder(const std::string& path) {
  return FileDescriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
}

/// Locks a folder until it is closed; fails with EWOULDBLOCK if it is locked.
bool hold(const FileDescriptor& folder) { return ::flock(folder.get(), LOCK_EX | LOCK_NB) == 0; }

bool is_removed(const FileDescriptor& folder) {
  struct stat status {};
  // A removed folder has no name left, although its descriptor is still open.
  return ::fstat(folder.get(), &status) != 0 || status.st_nlink == 0;
}

std::vector<fs::path> leftovers_of(const std::string& folder) {
  const std::string beginning = fs::path(folder).filename().string() + kUnfinished;
  std::vector<fs::path> leftovers;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(parent_of(folder), error)) {
    const std::string name = entry.path().filename().string();
    const bool is_one =
        // Only digits behind it: a user's folder NAME.unfinished-copy is not touched.
        name.starts_with(beginning) && name.find_first_not_of("0123456789", beginning.size()) == std::string::npos;
    if (is_one) leftovers.push_back(entry.path());
  }
  return leftovers;
}

void remove_unfinished(const std::string& folder) {
  std::error_code error;
  for (const fs::path& leftover : leftovers_of(folder)) {
    const FileDescriptor opened = open_folder(leftover.string());
    if (hold(opened)) fs::remove_all(leftover, error);
  }
}

}  // namespace

void require_new_folder(const std::string& folder, std::uint64_t bytes, const std::vector<std::string>& inputs) {
  require_free_place(folder);
  for (const fs::path& leftover : leftovers_of(without_slash(folder))) {
    for (const std::string& input : inputs) {
      // The input is the leftover itself, or a file in it.
      if (!is_same_file(input, leftover) && !is_same_file(parent_of(input).string(), leftover)) continue;
      reject("{}: would remove {}, which is read; give another folder", folder, input);
    }
  }
  require_parents(without_slash(folder));
  const std::optional<std::uint64_t> free = free_bytes(without_slash(folder));
  if (!free || *free >= bytes) return;
  reject("{}: the files need {}, and {} are free", folder, bytes_text(static_cast<double>(bytes)),
         bytes_text(static_cast<double>(*free)));
}

FolderHold::FolderHold(const std::string& folder) {
  require_free_place(folder);
  make_parent_folders(without_slash(folder));
  if (::mkdir(folder.c_str(), 0777) == 0) {
    made_ = folder;
  } else if (errno != EEXIST) {
    fail_to_write(folder, errno);
  }
  // An empty folder may be held, too: rename() replaces it at the end.
  lock_ = open_folder(without_slash(folder));
  if (hold(lock_) || errno != EWOULDBLOCK) return;
  throw ConfigError(fmt::format("{}: another run writes this folder; give another one", folder));
}

FolderHold::~FolderHold() {
  // rmdir() leaves a folder with files alone.
  if (!made_.empty()) ::rmdir(made_.c_str());
}

std::string StagedFolder::path_of(const std::string& folder, std::int64_t number) {
  return fmt::format("{}{}{}", without_slash(folder), kUnfinished, number);
}

StagedFolder::StagedFolder(std::string folder) : folder_(without_slash(std::move(folder))) {
  require_free_place(folder_);
  make_parent_folders(folder_);
  remove_unfinished(folder_);
  constexpr std::int64_t kNames = 1000;
  while (number_ < kNames) {
    path_ = path_of(folder_, ++number_);
    if (::mkdir(path_.c_str(), 0777) != 0) {
      if (errno == EEXIST) continue;
      break;
    }
    lock_ = open_folder(path_);
    // Between mkdir and flock another export may take the folder for a leftover: it removes or locks it.
    const bool is_taken = !hold(lock_) && errno == EWOULDBLOCK;  // other errors: the file system has no locks
    if (!is_taken && !is_removed(lock_)) return;                 // removed by another writer as a leftover
  }
  fail_to_write(path_, errno);
}

StagedFolder::~StagedFolder() {
  std::error_code none;
  if (!committed_) fs::remove_all(path_, none);
}

void StagedFolder::make_weights(const ExportPlan& plan) const {
  for (const ExportFile& file : plan.files) {
    write(file.name, file.layout.head);
    const std::string path = path_ + "/" + file.name;
    // Its full size at once, so that every rank can write its part anywhere; gaps take no space until then.
    if (::truncate(path.c_str(), static_cast<off_t>(file.layout.file_bytes)) != 0) fail_to_write(path, errno);
  }
  if (!plan.index.empty()) write(kIndexName, plan.index);
}

void StagedFolder::write(const std::string& name, const std::string& text) const {
  const std::string path = path_ + "/" + name;
  const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file.get() < 0) fail_to_write(path, errno);
  PartWriter(path).write(0, std::as_bytes(std::span(text)));
}

bool StagedFolder::copy(const std::string& source, const std::string& name) const {
  std::error_code error;
  if (!is_file(source)) return false;
  if (fs::copy_file(source, fs::path(path_) / name, error)) return true;
  reject("{}: cannot be copied to {} ({})", source, path_, error.message());
}

std::string StagedFolder::commit() {
  // Files before the rename, the parent after it: a crash leaves the whole folder or none.
  for (const fs::directory_entry& entry : fs::directory_iterator(path_)) sync(entry.path().string());
  sync(path_);
  constexpr int kNames = 1000;
  std::string name = folder_;
  for (int i = 2; std::rename(path_.c_str(), name.c_str()) != 0; ++i) {
    // The end of a long training must not be lost because somebody has used the name meanwhile.
    const bool is_taken = errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR;
    if (!is_taken || i > kNames) fail_to_write(name, errno);
    name = fmt::format("{}.{}", folder_, i);
  }
  if (name != folder_) {
    print_message(fmt::format("{}: another process has written it since the start; wrote {}", folder_, name));
  }
  committed_ = true;
  sync(parent_of(folder_).string());
  return name;
}

PartWriter::PartWriter(std::string path) : path_(std::move(path)), file_(::open(path_.c_str(), O_WRONLY | O_CLOEXEC)) {
  if (file_.get() < 0) fail_to_write(path_, errno);
}

void PartWriter::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail_to_write(path_, written < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
    unsynced_bytes_ += static_cast<std::uint64_t>(written);
  }
  if (unsynced_bytes_ < kMaxUnsyncedBytes) return;
  if (::fdatasync(file_.get()) != 0) fail_to_write(path_, errno);
  unsynced_bytes_ = 0;
}

void PartWriter::finish() {
  if (::fsync(file_.get()) != 0) fail_to_write(path_, errno);
}

}  // namespace chimera
