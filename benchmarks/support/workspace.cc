#include "support/workspace.h"

#include <cstdlib>
#include <fstream>
#include <system_error>

#include "core/error.h"
#include "core/random.h"

namespace chimera::benchmarks {

Workspace::Workspace(const std::string& name) {
  std::string pattern = (std::filesystem::temp_directory_path() / ("chimera-" + name + "-XXXXXX")).string();
  if (::mkdtemp(pattern.data()) == nullptr) throw Error("cannot make a folder " + pattern);
  folder_ = pattern;
}

Workspace::~Workspace() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void write_text(const std::string& path) {
  constexpr std::uint64_t kLetters = 500'000;
  const CounterRandom random(1, "throughput");
  std::string text;
  for (std::uint64_t i = 0; i < kLetters; ++i) {
    const std::uint64_t letter = random.below(i, 31);
    text += letter < 26 ? static_cast<char>('a' + letter) : letter < 30 ? ' ' : '\n';
  }
  std::ofstream(path) << text;
}

}  // namespace chimera::benchmarks
