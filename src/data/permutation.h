#pragma once
// A shuffled order that is computed, never stored.

#include <cstdint>
#include <string_view>

#include "core/random.h"

namespace chimera {

/// A permutation of 0 .. size - 1, chosen by seed and stream, in O(1) memory and time.
/// A Feistel network permutes the smallest 2^(2k) >= size; a result outside is permuted again until it falls inside
/// (cycle walking, fewer than 4 turns on average). The round function is CounterRandom.
/// Source: Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002.
class Permutation {
 public:
  /// size > 0. `stream` tells the permutations of one seed apart.
  Permutation(std::int64_t size, std::uint64_t seed, std::string_view stream);
  /// The stream "data.permutation.NUMBER"; the number is e.g. the epoch.
  Permutation(std::int64_t size, std::uint64_t seed, std::int64_t number);

  /// The image of `i`, both in 0 .. size - 1.
  [[nodiscard]] std::int64_t operator()(std::int64_t i) const;

 private:
  [[nodiscard]] std::uint64_t feistel(std::uint64_t value) const;

  std::uint64_t size_;
  unsigned half_bits_;
  CounterRandom round_function_;
};

}  // namespace chimera
