#pragma once
// A folder for files that nobody needs afterwards.

#include <filesystem>
#include <string>

namespace chimera {

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
