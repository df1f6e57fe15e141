#pragma once

// The file operations that write a checkpoint. They are virtual functions, so that a test can make any of them fail,
// and check that a full disk or a crash never damages another checkpoint. commit.h and shard.h write through a Disk.
// All operations except close() throw CheckpointError on failure.

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "core/error.h"

namespace chimera {

/// A checkpoint that cannot be written or read, or differs from its hashes.
class CheckpointError : public Error {
 public:
  using Error::Error;
};

/// File operations; each member function calls the operating system. Tests override some of them.
class Disk {
 public:
  virtual ~Disk() = default;
  /// Creates a folder. Returns false if the path already exists.
  virtual bool make_folder(const std::string& path);
  /// Creates or truncates a file; a symbolic link is an error. Returns a descriptor for close().
  virtual int create(const std::string& path);
  /// Returns the number of bytes written, at least one of a non-empty `bytes`. `path` is for messages.
  virtual std::size_t write(int file, std::span<const std::byte> bytes, const std::string& path);
  /// Waits until the file's content is on the disk (fsync).
  virtual void sync(int file, const std::string& path);
  virtual void close(int file) noexcept;
  /// Waits until the names of the files in the folder are on the disk (fsync of the folder).
  virtual void sync_folder(const std::string& path);
  /// Replaces an existing file, or an existing empty folder.
  virtual void rename(const std::string& from, const std::string& to);
  /// Swaps two paths atomically, to replace a checkpoint of the same step. Returns false if the kernel or the file
  /// system does not support it.
  virtual bool exchange(const std::string& one, const std::string& other);
  virtual void remove_file(const std::string& path);
  virtual void remove_folder(const std::string& path);
};

/// Returns the Disk that calls the operating system.
[[nodiscard]] Disk& real_disk();

/// A new file on a borrowed Disk. The destructor closes it, without syncing.
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

/// Writes or replaces a file and syncs it. Its name in the folder may still be lost in a crash until sync_folder().
void write_file(Disk& disk, const std::string& path, const std::string& text);
/// Removes a folder of files. If `folder` is a link, removes only the link.
void remove_with_files(Disk& disk, const std::string& folder);

}  // namespace chimera
