#pragma once
// Random numbers as pure functions of (seed, name, index): any rank can make any slice, in any order.
// Generator: Philox 4x32 with 10 rounds (Salmon et al., SC'11), from the Random123 library.

#include <cstdint>
#include <string_view>

namespace chimera {

/// An endless sequence of random numbers, read at any index. The sequence is a function of seed and name alone.
class CounterRandom {
 public:
  /// `name` tells streams of one seed apart, e.g. a parameter's global name.
  CounterRandom(std::uint64_t seed, std::string_view name);

  /// 64 uniform bits.
  [[nodiscard]] std::uint64_t bits(std::uint64_t index) const;
  /// Uniform in [0, 1), 53 bits.
  [[nodiscard]] double uniform(std::uint64_t index) const;
  /// Uniform in 0 .. bound-1 (bound > 0), with a bias below bound / 2^64.
  [[nodiscard]] std::uint64_t below(std::uint64_t index, std::uint64_t bound) const;
  /// Standard normal (Box-Muller; its two uniforms come from one Philox block).
  [[nodiscard]] double normal(std::uint64_t index) const;

 private:
  std::uint64_t key_;
  std::uint64_t stream_;
};

}  // namespace chimera
