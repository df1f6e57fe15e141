#pragma once
// The system calls by which checkpoints are written, as an interface: so that a test can have each of them fail.

#include <cstddef>
#include <span>
#include <string>

namespace chimera {

/// Files and folders. Each function is one system call, and throws CheckpointError where that fails.
class Disk {
 public:
  virtual ~Disk() = default;
  /// Makes a folder, in one that is there. Returns false where it is there already.
  virtual bool make_folder(const std::string& path);
  /// Makes a file, or empties it, for writing. Returns its descriptor, for close().
  virtual int create(const std::string& path);
  /// Writes some of the bytes, at least one, behind what was written. Returns how many. `path` is for messages.
  virtual std::size_t write(int file, std::span<const std::byte> bytes, const std::string& path);
  /// Waits until the disk has the file's bytes.
  virtual void sync(int file, const std::string& path);
  virtual void close(int file) noexcept;
  /// Waits until the disk has the names in a folder.
  virtual void sync_folder(const std::string& path);
  /// Moves a file, over one that is there, or a folder, over an empty one.
  virtual void rename(const std::string& from, const std::string& to);
  /// Gives each of two paths what the other one has. Returns false where the file system cannot.
  virtual bool exchange(const std::string& one, const std::string& other);
  virtual void remove_file(const std::string& path);
  virtual void remove_folder(const std::string& path);
};

/// The disk of this machine.
[[nodiscard]] Disk& real_disk();

/// Writes a new file, or one in place of an old one, and waits until the disk has its bytes. Its name may still be
/// lost.
void write_file(Disk& disk, const std::string& path, const std::string& text);
/// Removes a folder and the files in it. It has no folders.
void remove_with_files(Disk& disk, const std::string& folder);

}  // namespace chimera
