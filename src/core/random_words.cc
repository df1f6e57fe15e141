#include "core/random_words.h"

#include <algorithm>

// The rounds are spelled out here, not taken from Random123, because compilers vectorise only this form. A test
// compares.

namespace chimera {
namespace {

constexpr std::uint32_t kLanes = 16;

struct Group {
  std::array<std::uint32_t, kWordGroup> words;
};

[[gnu::always_inline]] inline void fill(std::uint64_t key, const WordStream& stream, std::uint32_t group,
                                        Group& result) {
  for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
    std::uint32_t a = group * kLanes + lane;
    std::uint32_t b = stream[0];
    std::uint32_t c = stream[1];
    std::uint32_t d = stream[2];
    auto low_key = static_cast<std::uint32_t>(key);
    auto high_key = static_cast<std::uint32_t>(key >> 32U);
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
const auto best_fill =
    __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") ? fill_avx512 : fill_anywhere;
#else
constexpr auto best_fill = fill_anywhere;
#endif

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

}  // namespace chimera
