#pragma once
// A private directory for the files of one test.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace chimera::testing {

/// Created empty; removed with its contents by the destructor.
class Scratch {
 public:
  Scratch();
  Scratch& operator=(Scratch&&) = delete;
  ~Scratch();

  /// The path of a file in it, which need not exist.
  [[nodiscard]] std::string path(const std::string& name) const { return (directory_ / name).string(); }
  /// Writes a file and returns its path.
  std::string write(const std::string& name, std::string_view text) const;
  [[nodiscard]] bool empty() const { return std::filesystem::is_empty(directory_); }

 private:
  std::filesystem::path directory_;
};

/// The whole text of a file; empty if there is none.
[[nodiscard]] std::string read_file(const std::filesystem::path& path);
/// The lines of a text without line ends, and any text after the last line end.
[[nodiscard]] std::vector<std::string> lines_of(const std::string& text);

}  // namespace chimera::testing
