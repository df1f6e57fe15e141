#pragma once
// Functions that read and write whole files, and temporary folders. A new file replaces an old one only when it is
// complete, so an interrupted command leaves the old file. The require_ functions find errors before a long computation
// starts.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace chimera {

/// Default size limit of read_whole().
inline constexpr std::size_t kMaxInputBytes = std::size_t{64} << 20;

/// Returns the content of a file, or of standard input for `-`. Throws ConfigError, naming the file, if it cannot be
/// read or has more than `most` bytes.
[[nodiscard]] std::string read_whole(const std::string& path, std::size_t most = kMaxInputBytes);

/// Return whether something, a regular file or a folder has this path, perhaps behind links. False if it cannot be
/// told, for example because a folder above may not be read.
[[nodiscard]] bool path_exists(const std::filesystem::path& path);
[[nodiscard]] bool is_file(const std::filesystem::path& path);
[[nodiscard]] bool is_folder(const std::filesystem::path& path);

/// Replaces a file atomically: writes a new file next to it and renames that. Does not sync, so a crash of the machine
/// may lose the text. Creates missing parent folders. Writes in place if `path` is a pipe or a device. Throws
/// ConfigError if it cannot write, but Error if the disk is full or fails.
void write_whole(const std::string& path, const std::string& text);

/// Throws ConfigError if write_whole() would fail now. Changes no file and creates no folder, but may create and remove
/// a file next to `path`.
void require_writable_whole(const std::string& path);

/// Creates the missing parent folders of a file. Throws as write_whole() does, naming the file, if it cannot.
void make_parent_folders(const std::string& path);

/// Throws ConfigError if make_parent_folders() would fail now, or if no file can be created in the parent folder.
/// Creates nothing.
void require_parents(const std::string& path);

/// Returns the free bytes of the file system for the file `path`, which need not exist; nullopt if they are unknown.
[[nodiscard]] std::optional<std::uint64_t> free_bytes(const std::string& path);

/// Writes the whole text to a descriptor. Returns the errno of a failure, or 0. Also waits if the descriptor is
/// non-blocking, because another program may have changed the mode of a shared terminal.
[[nodiscard]] int write_all(int descriptor, std::string_view text);

/// Returns whether both paths name the same file or, if it does not exist yet, would name the same file.
[[nodiscard]] bool is_same_file(const std::string& one, const std::string& other);

/// Throws ConfigError, naming `flag`, if `path` is a regular file that is not empty and `overwrites` is false.
void require_unused(const std::string& flag, const std::string& path, bool overwrites);

/// A new private folder in the system's folder for temporary files ($TMPDIR). The destructor removes it with its
/// content.
class TemporaryFolder {
 public:
  /// Throws ConfigError if it cannot create the folder.
  TemporaryFolder();
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder();

  [[nodiscard]] const std::filesystem::path& path() const { return folder_; }
  /// Returns the path of a file with this name in the folder; does not create it.
  [[nodiscard]] std::string file(const std::string& name) const { return folder_ / name; }

 private:
  std::filesystem::path folder_;
};

}  // namespace chimera
