#pragma once
// Starts and awaits child processes of a test, and captures their output.

#include <sys/types.h>

#include <string>
#include <vector>

namespace chimera {

/// A memory file that children inherit under the same descriptor.
class MemoryFile {
 public:
  explicit MemoryFile(const char* name);
  MemoryFile& operator=(MemoryFile&&) = delete;
  ~MemoryFile();
  [[nodiscard]] int descriptor() const { return descriptor_; }
  /// Path that is valid in this process and its children.
  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }
  /// All text written so far.
  [[nodiscard]] std::string text() const;

 private:
  int descriptor_;
};

/// Starts a program with the given arguments and environment variable ("NAME=value" or ""). Its stdout and stderr go to
/// `output`.
[[nodiscard]] pid_t start(const std::vector<std::string>& command, const std::string& variable,
                          const MemoryFile& output);

/// Waits for the end of a child. Returns its exit code, or minus the signal that ended it.
[[nodiscard]] int await(pid_t child);

}  // namespace chimera
