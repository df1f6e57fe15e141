#include "support/random_text.h"

#include <fstream>

#include "core/random.h"

namespace chimera::benchmarks {

void write_random_text(const std::string& path) {
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
