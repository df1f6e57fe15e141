#pragma once

#include <cstdint>
#include <random>

namespace chimera {

/// The random numbers of a search: the same for the same seed, on any machine. The output of std::mt19937_64 is
/// standardised; that of the standard's distributions is not. (CounterRandom costs as much as timing ten ops.)
class RandomSource {
 public:
  explicit RandomSource(std::uint64_t seed) : engine_(seed) {}
  /// Uniform in [0, 1).
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  /// Uniform in 0 .. bound-1, up to a bias below bound / 2^64.
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(engine_() % bound); }
  /// A seed for another source: 64 bits, wherever size_t has fewer.
  std::uint64_t seed() { return engine_(); }
  bool chance(double probability) { return uniform() < probability; }

 private:
  std::mt19937_64 engine_;
};

}  // namespace chimera
