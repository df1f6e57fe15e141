#include "core/random.h"

#include <Random123/philox.h>
#include <gtest/gtest.h>

#include <vector>

namespace chimera {
namespace {

constexpr std::uint64_t kKey = 0x0123456789ABCDEF;
constexpr WordStream kStream = {7, 8, 9};

std::vector<std::uint32_t> words(std::uint32_t group, std::size_t count) {
  std::vector<std::uint32_t> result(count);
  random_words(kKey, kStream, group, result);
  return result;
}

TEST(RandomWordsTest, MatchRandom123) {
  const auto made = words(3, 2 * kWordGroup);
  for (std::uint32_t i = 0; i < made.size(); ++i) {
    const std::uint32_t group = 3 + i / 64;
    const r123::Philox4x32::ctr_type counter = {{16 * group + i % 16, kStream[0], kStream[1], kStream[2]}};
    const r123::Philox4x32::key_type key = {{0x89ABCDEF, 0x01234567}};
    EXPECT_EQ(made[i], r123::Philox4x32{}(counter, key)[i % 64 / 16]) << i;
  }
}

TEST(RandomWordsTest, AnyCountIsAPrefixOfTheSequence) {
  const auto many = words(0, 3 * kWordGroup);
  for (const std::size_t count : {0U, 1U, 63U, 64U, 100U})
    EXPECT_EQ(words(0, count), std::vector(many.begin(), many.begin() + static_cast<std::ptrdiff_t>(count)));
  EXPECT_EQ(words(2, kWordGroup), std::vector(many.end() - kWordGroup, many.end()));
}

}  // namespace
}  // namespace chimera
