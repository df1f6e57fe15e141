#pragma once
// Random numbers, implemented from the text of docs/data.md: Philox 4x32 with 10 rounds.

#include <cstdint>
#include <string_view>

namespace oracle {

/// The infinite sequence of numbers for a seed and a name.
class Random {
 public:
  Random(std::uint64_t seed, std::string_view name);

  /// The first 64 of the 128 bits at `index`.
  [[nodiscard]] std::uint64_t bits(std::uint64_t index) const;
  /// The upper 53 of these bits as a number in [0, 1).
  [[nodiscard]] double uniform(std::uint64_t index) const;
  /// A number in 0 .. bound - 1: the upper half of the product of the bits and `bound`.
  [[nodiscard]] std::uint64_t below(std::uint64_t index, std::uint64_t bound) const;
  /// A normal number, by Box-Muller from both halves.
  [[nodiscard]] double normal(std::uint64_t index) const;

 private:
  struct Block {
    std::uint64_t first = 0;
    std::uint64_t second = 0;
  };
  [[nodiscard]] Block block(std::uint64_t index) const;

  std::uint64_t seed_;
  std::uint64_t stream_;
};

}  // namespace oracle
