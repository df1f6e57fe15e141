#pragma once

// The file operations that write a checkpoint or an export. They are virtual functions, so that a test can make any of
// them fail, and check that a full disk or a crash never damages another checkpoint. commit.h, shard.h and
// hugging_face/staged_folder.h write through a Disk.
// All operations except close() throw CheckpointError on failure.

#include <cstddef>
#include <cstdint>
#include <span>

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
  /// Opens a file to write into it. Returns a descriptor for close().
  virtual int open(const std::string& path);
  /// Writes the first bytes of `bytes`, which must not be empty, at `offset`. Returns their number, at least 1. `path`
  /// is for messages.
  virtual std::size_t write(int file, std::uint64_t offset, std::span<const std::byte> bytes, const std::string& path);
  /// Waits until the file's content is on the disk (fsync).
  virtual void sync(int file, const std::string& path);
  virtual void close(int file) noexcept;
  /// Waits until the names of the files in the folder are on the disk (fsync of the folder).
  virtual void sync_folder(const std::string& path);
  /// Renames a file or folder. Replaces an existing file, or an existing empty folder, called `to`.
  virtual void rename(const std::string& from, const std::string& to);
  /// Swaps two paths atomically, to replace a checkpoint of the same step. Returns false if the kernel or the file
  /// system does not support it.
  virtual bool exchange(const std::string& one, const std::string& other);
  virtual void remove_file(const std::string& path);
  /// Removes an empty folder.
  virtual void remove_folder(const std::string& path);
};

/// Returns the Disk that calls the operating system.
[[nodiscard]] Disk& real_disk();

/// An open file on a borrowed Disk. The destructor closes it, without syncing.
class OpenFile {
 public:
  /// Creates or truncates the file.
  OpenFile(Disk& disk, const std::string& path) : OpenFile(disk, path, disk.create(path)) {}
  /// Takes over a descriptor.
  OpenFile(Disk& disk, std::string path, int file) : disk_(disk), path_(std::move(path)), file_(file) {}
  OpenFile& operator=(OpenFile&&) = delete;
  ~OpenFile() { disk_.close(file_); }

  /// Writes behind all earlier bytes of this function.
  void write(std::span<const std::byte> bytes) {
    write_at(end_, bytes);
    end_ += bytes.size();
  }
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const std::size_t written = disk_.write(file_, offset, bytes, path_);
      offset += written;
      bytes = bytes.subspan(written);
    }
  }
  void sync() { disk_.sync(file_, path_); }

 private:
  Disk& disk_;
  std::string path_;
  int file_;
  std::uint64_t end_ = 0;
};

/// Writes or replaces a file and syncs it. Its name in the folder may still be lost in a crash until sync_folder().
void write_file(Disk& disk, const std::string& path, const std::string& text);
/// Writes or replaces a file in the folder. Readers, also after a crash, see the old text or the new one. When it
/// returns, the new one is on the disk.
void replace_file(Disk& disk, const std::string& folder, const std::string& name, const std::string& text);
/// Removes a folder and the files in it; a subfolder is an error. If `folder` is a link, removes only the link.
void remove_with_files(Disk& disk, const std::string& folder);

}  // namespace chimera
