#include "checkpoint/faulty_disk.h"

#include <algorithm>
#include <fstream>

#include "checkpoint/manifest.h"
#include "support/scratch.h"

namespace chimera::testing {

namespace fs = std::filesystem;

namespace {

std::string name_in(const std::string& path) { return fs::path(path).filename().string(); }

}  // namespace

FaultyDisk::FaultyDisk(DiskFault fault, int call, const std::string& root)
    : fault_(fault), fails_at_(call), root_(fs::path(root).lexically_normal()) {
  if (loses()) load(root_, *tree_);
}

bool FaultyDisk::enter(const std::string& path) {
  const bool now = calls_++ == fails_at_;
  if (now && fault_ != DiskFault::Error && fault_ != DiskFault::ShortWrite) dead_ = true;
  if (dead_ && fault_ >= DiskFault::Kill) throw Killed();
  if (dead_ || (now && fault_ == DiskFault::Error)) throw CheckpointError(path + ": injected");
  return now && fault_ == DiskFault::ShortWrite;
}

FaultyDisk::NodePointer FaultyDisk::find(const fs::path& path) const {
  NodePointer node = tree_;
  for (const fs::path& part : path.lexically_normal().lexically_relative(root_)) {
    if (part != "." && !part.empty()) node = node->names.at(part.string());
  }
  return node;
}

void FaultyDisk::change(const std::string& path, const Node::Names& names) {
  const NodePointer folder = find(fs::path(path).parent_path());
  folder->changes.push_back(names);
  for (const auto& [name, node] : names) {
    folder->names.erase(name);
    if (node) folder->names[name] = node;
  }
}

bool FaultyDisk::make_folder(const std::string& path) {
  enter(path);
  if (!Disk::make_folder(path)) return false;
  if (loses()) change(path, {{name_in(path), std::make_shared<Node>()}});
  return true;
}

int FaultyDisk::create(const std::string& path) {
  enter(path);
  const bool is_new = !fs::exists(path);
  const int file = Disk::create(path);
  if (!loses()) return file;
  if (is_new) change(path, {{name_in(path), std::make_shared<Node>(Node{.is_folder = false})}});
  find(path)->bytes.clear();
  return file;
}

int FaultyDisk::open(const std::string& path) {
  enter(path);
  return Disk::open(path);
}

std::size_t FaultyDisk::write(int file, std::uint64_t offset, std::span<const std::byte> bytes,
                              const std::string& path) {
  if (enter(path) && bytes.size() > 1) {
    fault_ = DiskFault::Error;
    fails_at_ = calls_;
    bytes = bytes.first(bytes.size() / 2);
  }
  const std::size_t written = Disk::write(file, offset, bytes, path);
  if (!loses()) return written;
  std::string& content = find(path)->bytes;
  content.resize(std::max(content.size(), offset + written));
  content.replace(offset, written, reinterpret_cast<const char*>(bytes.data()), written);
  return written;
}

void FaultyDisk::sync(int /*file*/, const std::string& path) {
  enter(path);
  if (loses()) find(path)->synced_bytes = find(path)->bytes;
}

void FaultyDisk::close(int file) noexcept { Disk::close(file); }

void FaultyDisk::sync_folder(const std::string& path) {
  enter(path);
  if (!loses()) return;
  const NodePointer folder = find(path);
  folder->synced_names = folder->names;
  folder->changes.clear();
}

void FaultyDisk::rename(const std::string& from, const std::string& to) {
  enter(to);
  Disk::rename(from, to);
  if (loses()) change(to, {{name_in(from), nullptr}, {name_in(to), find(from)}});
}

bool FaultyDisk::exchange(const std::string& one, const std::string& other) {
  enter(other);
  if (!Disk::exchange(one, other)) return false;
  if (loses()) change(other, {{name_in(one), find(other)}, {name_in(other), find(one)}});
  return true;
}

void FaultyDisk::remove_file(const std::string& path) {
  enter(path);
  Disk::remove_file(path);
  if (loses()) change(path, {{name_in(path), nullptr}});
}

void FaultyDisk::remove_folder(const std::string& path) {
  enter(path);
  Disk::remove_folder(path);
  if (loses()) change(path, {{name_in(path), nullptr}});
}

void FaultyDisk::load(const fs::path& folder, Node& node) const {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const auto inner = std::make_shared<Node>(Node{.is_folder = entry.is_directory()});
    if (inner->is_folder) {
      load(entry.path(), *inner);
    } else {
      inner->bytes = inner->synced_bytes = read_file(entry.path().string());
    }
    node.names[entry.path().filename().string()] = inner;
  }
  node.synced_names = node.names;
}

FaultyDisk::Node::Names FaultyDisk::names_after(const Node& folder) const {
  Node::Names names = folder.synced_names;
  for (std::size_t i = 0; i < folder.changes.size(); ++i) {
    const bool is_last = i + 1 == folder.changes.size();
    if (fault_ == DiskFault::LoseNames || (fault_ == DiskFault::LoseFirstName && i == 0) ||
        (fault_ == DiskFault::KeepLastName && !is_last))
      continue;
    for (const auto& [name, node] : folder.changes[i]) names[name] = node;
  }
  std::erase_if(names, [](const auto& entry) { return entry.second == nullptr; });
  return names;
}

void FaultyDisk::store(const fs::path& folder, const Node& node) const {
  for (const auto& [name, inner] : names_after(node)) {
    if (inner->is_folder) {
      fs::create_directory(folder / name);
      store(folder / name, *inner);
    } else {
      std::ofstream(folder / name, std::ios::binary) << inner->synced_bytes;
    }
  }
}

void FaultyDisk::lose_unsynced() {
  if (!loses()) return;
  for (const fs::directory_entry& entry : fs::directory_iterator(root_)) fs::remove_all(entry.path());
  store(root_, *tree_);
}

}  // namespace chimera::testing
