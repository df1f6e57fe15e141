#include "hugging_face/staged_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/manifest.h"
#include "core/console.h"
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

/// Returns whether something other than an empty folder has this name, which no rename can replace then.
bool is_taken(const std::string& folder) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(folder, error);
  return fs::exists(status) && (!fs::is_directory(status) || !fs::is_empty(folder, error));
}

void require_free_place(const std::string& folder) {
  const std::string name = fs::path(without_slash(folder)).filename().string();
  if (name.empty() || name == "." || name == "..") reject("{}: is not a valid name for a new folder", folder);
  if (is_taken(without_slash(folder))) reject("{}: exists already; give a new folder", folder);
  for (fs::path above = fs::absolute(without_slash(folder)); above.has_relative_path();) {
    const std::string own = above.filename().string();
    above = above.parent_path();
    // Checkpoints are removed with all that is in them, and their names are for checkpoints.
    if (step_of_name(above.filename()) && is_file(above / kManifestName))
      reject("{}: is in the checkpoint {}; give a folder elsewhere", folder, above.string());
    if (step_of_name(own.substr(0, own.find(".tmp"))) && is_file(above / kLatestName))
      reject("{}: is a name for checkpoints of the run {}; give another", folder, above.string());
  }
  // No rename can replace a mount point.
  if (is_on_other_file_system(folder, parent_of(folder)))
    reject("{}: a file system is mounted there; give a new folder in it", folder);
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

}  // namespace

void remove_unfinished(const std::string& folder) {
  std::error_code error;
  for (const fs::path& leftover : leftovers_of(folder)) {
    const FileDescriptor opened = open_folder(leftover.string());
    if (hold(opened)) fs::remove_all(leftover, error);
  }
}

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
  make_parent_folders(without_slash(folder));
  if (::mkdir(folder.c_str(), 0777) == 0)
    made_ = folder;
  else if (errno != EEXIST)
    reject("{}: cannot be written ({})", folder, system_message(errno));
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

StagedFolder::StagedFolder(std::string folder, Disk& disk) : folder_(without_slash(std::move(folder))), disk_(disk) {
  make_parent_folders(folder_);
  remove_unfinished(folder_);
  constexpr std::int64_t kNames = 1000;
  while (number_ < kNames) {
    path_ = path_of(folder_, ++number_);
    if (!disk_.make_folder(path_)) continue;
    lock_ = open_folder(path_);
    // Between mkdir and flock another export may take the folder for a leftover: it removes or locks it.
    const bool is_taken = !hold(lock_) && errno == EWOULDBLOCK;  // other errors: the file system has no locks
    if (!is_taken && !is_removed(lock_)) return;                 // removed by another writer as a leftover
  }
  reject("{}: exists already; remove it, or give another folder", path_);
}

StagedFolder::~StagedFolder() {
  std::error_code none;
  if (!committed_) fs::remove_all(path_, none);
}

void StagedFolder::make_weights(const ExportPlan& plan) const {
  for (const ExportFile& file : plan.files) {
    OpenFile weights(disk_, path_ + "/" + file.name);
    weights.write(std::as_bytes(std::span(file.layout.head)));
    // Its full size at once, so that every rank can write its part anywhere; gaps take no space until then.
    if (file.layout.file_bytes > file.layout.head.size())
      weights.write_at(file.layout.file_bytes - 1, {{std::byte(0)}});
    weights.sync();
  }
  if (!plan.index.empty()) write(kIndexName, plan.index);
}

void StagedFolder::write(const std::string& name, const std::string& text) const {
  write_file(disk_, path_ + "/" + name, text);
}

std::string StagedFolder::commit() {
  // Names of the files before the rename, the parent after it: a crash leaves the whole folder or none.
  disk_.sync_folder(path_);
  constexpr int kNames = 1000;
  std::string name = folder_;
  for (int i = 2; true; ++i) {
    try {
      disk_.rename(path_, name);
      break;
    } catch (const CheckpointError&) {
      // The end of a long training must not be lost because somebody has used the name meanwhile.
      if (!is_taken(name) || i > kNames) throw;
      name = fmt::format("{}.{}", folder_, i);
    }
  }
  committed_ = true;
  if (name != folder_)
    print_message(fmt::format("{}: another process has written it since the start; wrote {}", folder_, name));
  disk_.sync_folder(parent_of(folder_).string());
  return name;
}

void PartWriter::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  file_.write_at(offset, bytes);
  unsynced_bytes_ += bytes.size();
  if (unsynced_bytes_ < kMaxUnsyncedBytes) return;
  finish();
  unsynced_bytes_ = 0;
}

}  // namespace chimera
