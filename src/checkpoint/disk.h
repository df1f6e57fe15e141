#pragma once

// The file operations of a checkpoint's writer. They exist as an interface so that tests can let any of them fail, and
// prove that a full disk or a crash never damages another checkpoint. commit.h and shard.h write through them. All but
// close() throw CheckpointError on failure.

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "core/error.h"

namespace chimera {

/// A checkpoint that cannot be written, or differs from its hashes.
class CheckpointError : public Error {
 public:
  using Error::Error;
};

class Disk {
 public:
  virtual ~Disk() = default;
  /// Returns false if the path exists.
  virtual bool make_folder(const std::string& path);
  /// Creates or truncates a file; a symbolic link is an error. Returns a descriptor for close().
  virtual int create(const std::string& path);
  /// Returns the number of bytes written, at least one of a non-empty `bytes`. `path` is for messages.
  virtual std::size_t write(int file, std::span<const std::byte> bytes, const std::string& path);
  virtual void sync(int file, const std::string& path);
  virtual void close(int file) noexcept;
  /// Waits until the folder's entries are on the disk.
  virtual void sync_folder(const std::string& path);
  /// Replaces an existing file, or an existing empty folder.
  virtual void rename(const std::string& from, const std::string& to);
  /// Swaps two paths atomically. Returns false if the kernel or the file system does not support it.
  virtual bool exchange(const std::string& one, const std::string& other);
  virtual void remove_file(const std::string& path);
  virtual void remove_folder(const std::string& path);
};

[[nodiscard]] Disk& real_disk();

/// Owner of a file on a borrowed Disk.
class OpenFile {
 public:
  OpenFile(Disk& disk, std::string path) : disk_(disk), path_(std::move(path)), file_(disk.create(path_)) {}
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() { disk_.close(file_); }

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) bytes = bytes.subspan(disk_.write(file_, bytes, path_));
  }
  void sync() { disk_.sync(file_, path_); }

 private:
  Disk& disk_;
  std::string path_;
  int file_;
};

/// Writes or replaces a file and syncs it, but not its folder entry.
void write_file(Disk& disk, const std::string& path, const std::string& text);
/// Removes a folder of files. If `folder` is a link, removes only the link.
void remove_with_files(Disk& disk, const std::string& folder);

}  // namespace chimera
