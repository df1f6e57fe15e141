#pragma once
// A shuffled order that is computed, never stored.

#include <cstdint>

#include "core/random.h"

namespace chimera {

/// A permutation of 0 .. size - 1, chosen by seed and number, in O(1) memory and time.
/// A Feistel network permutes the smallest 2^(2k) >= size; a result outside is permuted again until it falls inside
/// (cycle walking, fewer than 4 turns on average). The round function is CounterRandom.
/// Source: Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002.
class Permutation {
 public:
  /// size > 0. `number` tells the permutations of one seed apart, e.g. the epoch.
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
