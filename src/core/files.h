#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

// Files that are read in one piece.

// Files that appear whole or not at all.

// A folder for files that nobody needs afterwards.

namespace chimera {

/// No file that is read in one piece is longer, unless its reader says so: 64 MiB.
inline constexpr std::size_t kMostInputBytes = std::size_t{64} << 20;

/// The text of a file, or of standard input for `-`. Throws ConfigError, naming the file, where it cannot be read or
/// has more than `most` bytes; of /dev/zero no more than that is read.
[[nodiscard]] std::string read_whole(const std::string& path, std::size_t most = kMostInputBytes);

/// Writes a new file beside its place (`path`.unfinished, or a name with a number where that is taken) and moves it
/// there: whatever happens, `path` has its old content or all of the new.
/// What is no regular file (/dev/null, a pipe) is written to, never replaced. Throws ConfigError where it cannot be
/// written.
void write_whole(const std::string& path, const std::string& text);

/// Throws ConfigError where write_whole could not write now. Leaves `path` and all files beside it as they are.
void require_writable_whole(const std::string& path);

/// A new folder that no other process knows, where the system keeps temporary files; removed with all that is in it.
class TemporaryFolder {
 public:
  /// Throws Error where it cannot be made.
  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();

  [[nodiscard]] const std::filesystem::path& path() const { return folder_; }
  /// The path of a file in it.
  [[nodiscard]] std::string file(const std::string& name) const { return folder_ / name; }

 private:
  std::filesystem::path folder_;
};

}  // namespace chimera
