#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

// Random numbers in bulk, for masks: the words of Philox 4x32 with 10 rounds, as pure functions of their index.

// Random numbers as pure functions of (seed, name, index): any rank can make any slice, in any order.
// Generator: Philox 4x32 with 10 rounds (Salmon et al., SC'11), from the Random123 library.

namespace chimera {

/// The sequences of one key; any two streams are different parts of Philox's output.
using WordStream = std::array<std::uint32_t, 3>;

/// Sixteen Philox blocks, the unit that random_words() makes.
inline constexpr std::size_t kWordGroup = 64;

/// Words kWordGroup * group, kWordGroup * group + 1, ... of the sequence (key, stream), each uniform in 0 .. 2^32-1.
/// `words` may have any length. Word 64 g + 16 w + l is word w of the Philox block with counter (16 g + l, stream), so
/// that vector units make 16 blocks at once; the words are the same on every machine. A sequence repeats after 2^34
/// words. 0.6 ns a word with AVX-512, 1.7 ns without.
void random_words(std::uint64_t key, const WordStream& stream, std::uint32_t group, std::span<std::uint32_t> words);

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
