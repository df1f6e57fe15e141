#include "bench/random_letters.h"

#include <cstdint>
#include <string>

#include "core/files.h"
#include "core/random.h"

namespace chimera {

void write_random_letters(const std::string& path) {
  constexpr std::uint64_t kLetters = 500'000;
  const CounterRandom random(1, "validation");
  std::string text;
  for (std::uint64_t i = 0; i < kLetters; ++i) {
    const std::uint64_t letter = random.below(i, 32);
    text += letter < 26 ? static_cast<char>('a' + letter) : ' ';
  }
  write_whole(path, text);
}

}  // namespace chimera
