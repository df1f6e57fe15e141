#include "checkpoint/faulty_disk.h"

#include <filesystem>
#include <utility>

#include "checkpoint/manifest.h"

namespace chimera::testing {

namespace fs = std::filesystem;

bool FaultyDisk::enter(const std::string& path) {
  const bool now = calls_++ == fails_at_;
  const bool ends = fault_ == DiskFault::Kill || fault_ == DiskFault::LoseBytes || fault_ == DiskFault::LoseNames;
  if (now && fault_ != DiskFault::Error && fault_ != DiskFault::ShortWrite) dead_ = true;
  if (dead_ && ends) throw Killed();
  if (dead_ || (now && fault_ == DiskFault::Error)) throw CheckpointError(path + ": injected");
  return now && fault_ == DiskFault::ShortWrite;
}

void FaultyDisk::note(const std::string& path, std::function<void()> undo) {
  names_.push_back({fs::path(path).parent_path().string(), std::move(undo)});
}

/// Files keep their recorded sizes when a parent folder is renamed.
void FaultyDisk::move_sizes(const std::string& from, const std::string& to) {
  std::map<std::string, std::size_t> moved;
  for (const auto& [path, bytes] : unsynced_) {
    moved[path.starts_with(from) ? to + path.substr(from.size()) : path] = bytes;
  }
  unsynced_ = std::move(moved);
}

bool FaultyDisk::make_folder(const std::string& path) {
  enter(path);
  if (!Disk::make_folder(path)) return false;
  note(path, [path] { fs::remove_all(path); });
  return true;
}

int FaultyDisk::create(const std::string& path) {
  enter(path);
  const bool is_new = !fs::exists(path);
  const int file = Disk::create(path);
  unsynced_[path] = 0;
  if (is_new) note(path, [path] { fs::remove(path); });
  return file;
}

std::size_t FaultyDisk::write(int file, std::span<const std::byte> bytes, const std::string& path) {
  if (enter(path) && bytes.size() > 1) {
    fault_ = DiskFault::Error;
    fails_at_ = calls_;
    bytes = bytes.first(bytes.size() / 2);
  }
  return Disk::write(file, bytes, path);
}

void FaultyDisk::sync(int /*file*/, const std::string& path) {
  enter(path);
  unsynced_.erase(path);
}

void FaultyDisk::close(int file) noexcept { Disk::close(file); }

void FaultyDisk::sync_folder(const std::string& path) {
  enter(path);
  std::erase_if(names_, [&](const NameChange& change) { return change.folder == path; });
}

void FaultyDisk::rename(const std::string& from, const std::string& to) {
  enter(to);
  Disk::rename(from, to);
  move_sizes(from, to);
  note(to, [from, to] { fs::rename(to, from); });
}

bool FaultyDisk::exchange(const std::string& one, const std::string& other) {
  enter(other);
  if (!Disk::exchange(one, other)) return false;
  note(other, [one, other] { real_disk().exchange(one, other); });
  return true;
}

void FaultyDisk::remove_file(const std::string& path) {
  enter(path);
  Disk::remove_file(path);
  unsynced_.erase(path);
}

void FaultyDisk::remove_folder(const std::string& path) {
  enter(path);
  Disk::remove_folder(path);
}

void FaultyDisk::lose_unsynced() {
  if (fault_ != DiskFault::LoseBytes && fault_ != DiskFault::LoseNames) return;
  for (const auto& [path, bytes] : unsynced_) {
    if (fs::exists(path)) fs::resize_file(path, bytes);
  }
  if (fault_ == DiskFault::LoseBytes) return;
  for (; !names_.empty(); names_.pop_back()) {
    std::error_code gone;  // if the file was removed later
    try {
      names_.back().undo();
    } catch (const fs::filesystem_error&) {
      continue;
    }
  }
}

}  // namespace chimera::testing
