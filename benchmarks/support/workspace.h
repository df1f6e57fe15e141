#pragma once
// Files that a benchmark needs while it runs.

#include <filesystem>
#include <string>

namespace chimera::benchmarks {

/// A folder of its own for data and metrics, removed at the end.
class Workspace {
 public:
  /// `name`: of the benchmark. Throws Error where no folder can be made.
  explicit Workspace(const std::string& name);
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace();
  [[nodiscard]] std::string file(const std::string& name) const { return folder_ / name; }

 private:
  std::filesystem::path folder_;
};

/// Half a megabyte of random words: what the tokens say makes no difference to their speed.
void write_text(const std::string& path);

}  // namespace chimera::benchmarks
