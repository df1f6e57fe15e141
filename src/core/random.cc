#define XXH_INLINE_ALL  // Header-only, no library to link
#include "core/random.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

// Philox4x32-10 of Salmon et al. (SC'11): random numbers are a function of key and counter, so that any rank computes
// the numbers of any element without the ones before it.
// The rounds are spelled out, because compilers vectorize only this form. A test compares it with Random123.

namespace chimera {
namespace {

constexpr std::uint32_t kLanes = 16;

struct Group {
  std::array<std::uint32_t, kWordGroup> words;
};

[[gnu::always_inline]] inline void philox(std::uint64_t key, std::uint32_t& a, std::uint32_t& b, std::uint32_t& c,
                                          std::uint32_t& d) {
  auto low_key = static_cast<std::uint32_t>(key);
  auto high_key = static_cast<std::uint32_t>(key >> 32U);
// Multipliers and key increments are those of the paper.
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t first = std::uint64_t{0xD2511F53U} * a;
    const std::uint64_t second = std::uint64_t{0xCD9E8D57U} * c;
    a = static_cast<std::uint32_t>(second >> 32U) ^ b ^ low_key;
    b = static_cast<std::uint32_t>(second);
    c = static_cast<std::uint32_t>(first >> 32U) ^ d ^ high_key;
    d = static_cast<std::uint32_t>(first);
    low_key += 0x9E3779B9U;
    high_key += 0xBB67AE85U;
  }
}

[[gnu::always_inline]] inline void fill(std::uint64_t key, const WordStream& stream, std::uint32_t group,
                                        Group& result) {
  for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
    // Sixteen counters at once, one for each lane of a vector register of 512 bits.
    std::uint32_t a = group * kLanes + lane;
    std::uint32_t b = stream[0];
    std::uint32_t c = stream[1];
    std::uint32_t d = stream[2];
    philox(key, a, b, c, d);
    // Word w of all lanes stands together, see random_words() in the header.
    result.words[lane] = a;
    result.words[kLanes + lane] = b;
    result.words[2 * kLanes + lane] = c;
    result.words[3 * kLanes + lane] = d;
  }
}

void fill_anywhere(std::uint64_t key, const WordStream& stream, std::uint32_t group, Group& result) {
  fill(key, stream, group, result);
}

#if defined(__x86_64__)
[[gnu::target("avx512f,avx512dq")]] void fill_avx512(std::uint64_t key, const WordStream& stream, std::uint32_t group,
                                                     Group& result) {
  fill(key, stream, group, result);
}
// Chosen at the start by the processor; both give the same numbers.
const auto best_fill =
    __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") ? fill_avx512 : fill_anywhere;
#else
constexpr auto best_fill = fill_anywhere;
#endif

std::array<std::uint64_t, 2> block(std::uint64_t key, std::uint64_t stream, std::uint64_t index) {
  // The counter of Philox has 128 bits: the index, then the stream.
  auto [a, b, c, d] = std::array{static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32U),
                                 static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32U)};
  philox(key, a, b, c, d);
  return {(std::uint64_t{b} << 32U) | a, (std::uint64_t{d} << 32U) | c};
}

// 53 bits fill the mantissa, so every result is exact and below 1.
double to_unit(std::uint64_t bits) { return static_cast<double>(bits >> 11U) * 0x1.0p-53; }

}  // namespace

void random_words(std::uint64_t key, const WordStream& stream, std::uint32_t group, std::span<std::uint32_t> words) {
  Group made;
  while (!words.empty()) {
    best_fill(key, stream, group++, made);
    const std::size_t count = std::min(words.size(), kWordGroup);
    std::copy_n(made.words.begin(), count, words.begin());
    words = words.subspan(count);
  }
}

CounterRandom::CounterRandom(std::uint64_t seed, std::string_view name)
    : key_(seed), stream_(XXH3_64bits(name.data(), name.size())) {}

std::uint64_t CounterRandom::bits(std::uint64_t index) const { return block(key_, stream_, index)[0]; }

double CounterRandom::uniform(std::uint64_t index) const { return to_unit(bits(index)); }

// The high half of a product is uniform but for a bias of less than bound / 2^64, without a division or a retry.
std::uint64_t CounterRandom::below(std::uint64_t index, std::uint64_t bound) const {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<Wide>(bits(index)) * bound) >> 64U);
}

// Box-Muller needs no rejection, so every index costs one block and gives one number.
double CounterRandom::normal(std::uint64_t index) const {
  const auto words = block(key_, stream_, index);
  // 1 - u is in (0, 1]
  const double radius = std::sqrt(-2.0 * std::log(1.0 - to_unit(words[0])));
  return radius * std::cos(2.0 * std::numbers::pi * to_unit(words[1]));
}

}  // namespace chimera
