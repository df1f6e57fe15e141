#pragma once

// Random text for runs that only measure times, so that users need no data: `chimera plan --run` without --data, and
// `chimera profile`.

#include "core/files.h"
#include "core/random.h"

namespace chimera {

/// Returns `count` random lowercase letters and spaces. `name` selects the random sequence: the same name gives the
/// same text.
[[nodiscard]] inline std::string random_letters(std::uint64_t count, std::string_view name) {
  const CounterRandom random(1, name);
  std::string text;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t letter = random.below(i, 32);
    text += letter < 26 ? static_cast<char>('a' + letter) : ' ';
  }
  return text;
}

/// Writes a file of 500,000 random letters, always the same, to train on. Throws ConfigError or Error if it cannot.
inline void write_random_letters(const std::string& path) { write_whole(path, random_letters(500'000, "validation")); }

}  // namespace chimera
