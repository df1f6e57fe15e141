#include "data/permutation.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

namespace chimera {
namespace {

std::vector<std::int64_t> images(std::int64_t size, std::uint64_t seed, std::int64_t number) {
  const Permutation permutation(size, seed, std::to_string(number));
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < size; ++i) values.push_back(permutation(i));
  return values;
}

bool is_permutation_of_indices(std::vector<std::int64_t> values) {
  std::ranges::sort(values);
  std::vector<std::int64_t> expected(values.size());
  std::iota(expected.begin(), expected.end(), 0);
  return values == expected;
}

TEST(PermutationTest, IsABijectionForEverySmallSize) {
  for (std::int64_t size = 1; size <= 300; ++size) EXPECT_TRUE(is_permutation_of_indices(images(size, 1, 0))) << size;
}

RC_GTEST_PROP(PermutationTest, IsABijection, ()) {
  const auto size = *rc::gen::inRange<std::int64_t>(1, 5000);
  RC_ASSERT(is_permutation_of_indices(images(size, *rc::gen::arbitrary<std::uint64_t>(), *rc::gen::inRange(0, 9))));
}

RC_GTEST_PROP(PermutationTest, StaysInsideHugeSizes, ()) {
  const auto size = *rc::gen::inRange<std::int64_t>(std::int64_t{1} << 40, std::int64_t{1} << 50);
  const auto image = Permutation(size, 1, "0")(*rc::gen::inRange<std::int64_t>(0, size));
  RC_ASSERT(image >= 0);
  RC_ASSERT(image < size);
}

TEST(PermutationTest, DependsOnSeedAndNumber) {
  EXPECT_EQ(images(100, 1, 0), images(100, 1, 0));
  EXPECT_NE(images(100, 1, 0), images(100, 2, 0));
  EXPECT_NE(images(100, 1, 0), images(100, 1, 1));
}

/// 6000 permutations of 6: each of the 36 pairs (place, image) is expected 1000 times, with a standard deviation of 29.
TEST(PermutationTest, SendsEveryPlaceEverywhereEquallyOften) {
  std::vector<std::vector<int>> hits(6, std::vector<int>(6));
  for (std::int64_t number = 0; number < 6000; ++number) {
    const Permutation permutation(6, 1, std::to_string(number));
    for (std::int64_t i = 0; i < 6; ++i) ++hits[static_cast<std::size_t>(i)][static_cast<std::size_t>(permutation(i))];
  }
  for (const auto& row : hits) {
    for (const int count : row) EXPECT_NEAR(count, 1000, 130);
  }
}

}  // namespace
}  // namespace chimera
