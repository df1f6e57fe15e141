#pragma once
// File operations; tests override them to inject failures. All but close() throw CheckpointError on failure.

#include <cstddef>
#include <span>
#include <string>

namespace chimera {

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

/// Writes or replaces a file and syncs it, but not its folder entry.
void write_file(Disk& disk, const std::string& path, const std::string& text);
/// Removes a folder of files. If `folder` is a link, removes only the link.
void remove_with_files(Disk& disk, const std::string& folder);

}  // namespace chimera
