#include "oracle/random.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>
#include <cmath>

namespace oracle {
namespace {

constexpr double kPi = 3.14159265358979323846;

double unit(std::uint64_t bits) { return std::ldexp(static_cast<double>(bits >> 11U), -53); }

}  // namespace

Random::Random(std::uint64_t seed, std::string_view name)
    : seed_(seed), stream_(XXH3_64bits(name.data(), name.size())) {}

Random::Block Random::block(std::uint64_t index) const {
  std::array<std::uint64_t, 4> words = {index & 0xFFFFFFFFU, index >> 32U, stream_ & 0xFFFFFFFFU, stream_ >> 32U};
  std::array<std::uint64_t, 2> key = {seed_ & 0xFFFFFFFFU, seed_ >> 32U};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t left = 0xD2511F53U * words[0];
    const std::uint64_t right = 0xCD9E8D57U * words[2];
    words = {(right >> 32U) ^ words[1] ^ key[0], right & 0xFFFFFFFFU, (left >> 32U) ^ words[3] ^ key[1],
             left & 0xFFFFFFFFU};
    key = {(key[0] + 0x9E3779B9U) & 0xFFFFFFFFU, (key[1] + 0xBB67AE85U) & 0xFFFFFFFFU};
  }
  return {words[1] << 32U | words[0], words[3] << 32U | words[2]};
}

std::uint64_t Random::bits(std::uint64_t index) const { return block(index).first; }

double Random::uniform(std::uint64_t index) const { return unit(bits(index)); }

std::uint64_t Random::below(std::uint64_t index, std::uint64_t bound) const {
  __extension__ using Product = unsigned __int128;
  return static_cast<std::uint64_t>(Product{bits(index)} * bound >> 64U);
}

double Random::normal(std::uint64_t index) const {
  const Block both = block(index);
  return std::sqrt(-2 * std::log(1 - unit(both.first))) * std::cos(2 * kPi * unit(both.second));
}

}  // namespace oracle
