#pragma once

// A shuffled order without a table. An epoch may have billions of samples, and each rank reads only a few of them; so a
// rank computes the positions of just these. Samples (samples.h) shuffles an epoch with it, and Mixture (mixture.h) the
// order of sources in a block of samples.

#include "core/random.h"

namespace chimera {

/// Pseudorandom permutation of 0 .. size - 1 in O(1) memory and time. A Feistel network, with CounterRandom as round
/// function, permutes the smallest 2^(2k) >= size, repeatedly until the result is below size (cycle walking). Source:
/// Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002.
class Permutation {
 public:
  /// `stream` is a name that distinguishes permutations with the same seed. Requires size > 0.
  Permutation(std::int64_t size, std::uint64_t seed, std::string_view stream);

  /// Returns element `i` of the permutation. Requires 0 <= i < size.
  [[nodiscard]] std::int64_t operator()(std::int64_t i) const;

 private:
  [[nodiscard]] std::uint64_t feistel(std::uint64_t value) const;

  std::uint64_t size_;
  unsigned half_bits_;
  CounterRandom round_function_;
};

}  // namespace chimera
