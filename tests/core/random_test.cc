#include "core/random.h"

#include <gtest/gtest.h>

#include <cmath>

namespace chimera {
namespace {

TEST(CounterRandomTest, IsAFunctionOfSeedNameAndIndex) {
  const CounterRandom a(1, "h.0.ln_1.weight");
  EXPECT_EQ(a.bits(7), CounterRandom(1, "h.0.ln_1.weight").bits(7));
  EXPECT_NE(a.bits(7), a.bits(8));
  EXPECT_NE(a.bits(7), CounterRandom(2, "h.0.ln_1.weight").bits(7));
  EXPECT_NE(a.bits(7), CounterRandom(1, "h.1.ln_1.weight").bits(7));
}

TEST(CounterRandomTest, BelowIsLessThanItsLimit) {
  const CounterRandom random(3, "below");
  for (std::uint64_t i = 0; i < 1000; ++i) EXPECT_LT(random.below(i, 7), 7U);
}

TEST(CounterRandomTest, NormalHasMeanZeroAndVarianceOne) {
  const CounterRandom random(4, "normal");
  constexpr int kCount = 200'000;
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < kCount; ++i) {
    const double x = random.normal(static_cast<std::uint64_t>(i));
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kCount, 0.0, 5 / std::sqrt(kCount));
  EXPECT_NEAR(squares / kCount, 1.0, 5 * std::sqrt(2.0 / kCount));
}

}  // namespace
}  // namespace chimera
