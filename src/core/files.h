#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace chimera {

/// Default size limit of read_whole().
inline constexpr std::size_t kMostInputBytes = std::size_t{64} << 20;

/// Returns the content of a file, or of standard input for `-`. Throws ConfigError, naming the file, if it cannot be
/// read or has more than `most` bytes.
[[nodiscard]] std::string read_whole(const std::string& path, std::size_t most = kMostInputBytes);

/// Replaces a file atomically: writes a new file next to it and renames that. Writes in place if `path` is not a
/// regular file. Throws ConfigError if it cannot write.
void write_whole(const std::string& path, const std::string& text);

/// Throws ConfigError if write_whole() would fail now. Changes no file.
void require_writable_whole(const std::string& path);

/// A new private folder for temporary files. The destructor removes it with its content.
class TemporaryFolder {
 public:
  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();

  [[nodiscard]] const std::filesystem::path& path() const { return folder_; }
  [[nodiscard]] std::string file(const std::string& name) const { return folder_ / name; }

 private:
  std::filesystem::path folder_;
};

}  // namespace chimera
