#include "data/permutation.h"

#include <algorithm>
#include <bit>

namespace chimera {

Permutation::Permutation(std::int64_t size, std::uint64_t seed, std::string_view stream)
    : size_(static_cast<std::uint64_t>(size)),
      // Half of the bits of the largest element, rounded up: the domain 2^(2 half_bits) is less than 4 times the size,
      // so cycle walking takes fewer than 4 turns on average.
      half_bits_(std::max(1U, (static_cast<unsigned>(std::bit_width(size_ - 1)) + 1) / 2)),
      round_function_(seed, stream) {}

std::int64_t Permutation::operator()(std::int64_t i) const {
  auto value = feistel(static_cast<std::uint64_t>(i));
  while (value >= size_) value = feistel(value);
  return static_cast<std::int64_t>(value);
}

std::uint64_t Permutation::feistel(std::uint64_t value) const {
  constexpr std::uint64_t kRounds = 8;  // four rounds suffice for large domains only
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = value >> half_bits_;
  std::uint64_t right = value & mask;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    // Each round is invertible whatever the round function is, so the network is a permutation.
    const std::uint64_t mixed = left ^ (round_function_.bits((round << half_bits_) | right) & mask);
    left = right;
    right = mixed;
  }
  return (left << half_bits_) | right;
}

}  // namespace chimera
