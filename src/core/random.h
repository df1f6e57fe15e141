#pragma once
// Random numbers as pure functions of (seed, name, index), where the name says what they are for, such as a parameter.
// A rank computes the numbers of its own layers and samples directly, without generating the numbers of other ranks.
// Weights, data order and dropout therefore do not depend on how the model is divided among ranks. Generator: Philox
// 4x32 with 10 rounds (Salmon et al., SC'11), as in Random123.

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace chimera {

/// With a key, selects a sequence of random words. These are the last three words of the Philox counter, whose first
/// word counts blocks within the sequence.
using WordStream = std::array<std::uint32_t, 3>;

/// Number of words that random_words() generates at once.
inline constexpr std::size_t kWordGroup = 64;

/// Fills `words`, of any length, with consecutive words of the sequence (key, stream), from word kWordGroup * group on.
/// Each is uniform in 0 .. 2^32-1 and the same on every machine. A sequence repeats after 2^34 words.
///
/// Vector units generate a group of 16 Philox blocks of 4 words at once. The words of a group are therefore ordered by
/// their index in the block, then by block: word 16 w + l of group g is word w of the block with the counter (16 g + l,
/// stream).
void random_words(std::uint64_t key, const WordStream& stream, std::uint32_t group, std::span<std::uint32_t> words);

/// Random numbers with random access by index, determined by seed and name. Used for initial weights, data order,
/// masks and sampled text; dropout uses random_words().
class CounterRandom {
 public:
  CounterRandom(std::uint64_t seed, std::string_view name);

  /// Returns 64 uniform bits.
  [[nodiscard]] std::uint64_t bits(std::uint64_t index) const;
  /// Returns a number uniform in [0, 1), with 53 random bits.
  [[nodiscard]] double uniform(std::uint64_t index) const;
  /// Returns a number uniform in 0 .. bound-1 (bound > 0), with a bias below bound / 2^64.
  [[nodiscard]] std::uint64_t below(std::uint64_t index, std::uint64_t bound) const;
  /// Returns a standard normal number (Box-Muller).
  [[nodiscard]] double normal(std::uint64_t index) const;

 private:
  std::uint64_t key_;
  std::uint64_t stream_;
};

}  // namespace chimera
