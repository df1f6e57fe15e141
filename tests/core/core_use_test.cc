// The load of other programs on the cores of a run.

#include "core/core_use.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "core/clock.h"

namespace chimera {
namespace {

using ::testing::Optional;

double ticks(double count) { return count / static_cast<double>(::sysconf(_SC_CLK_TCK)); }

TEST(CoreUseTest, CountsBusyTimeOfTheCores) {
  const std::string stat =
      "cpu  1000 0 0 0 0 0 0 0 0 0\n"
      "cpu0 10 20 30 40000 50000 1 2 3 5 6\n"
      "cpu1 100 0 0 0 0 0 0 0 0 0\n"
      "cpu10 1000 0 0 0 0 0 0 0 0 0\n"
      "intr 1 2 3\n";
  EXPECT_THAT(busy_seconds(stat, {0}), Optional(ticks(66))) << "neither idle nor waiting for disks, guests once";
  EXPECT_THAT(busy_seconds(stat, {1, 0}), Optional(ticks(166)));
  EXPECT_EQ(busy_seconds(stat, {0, 7}), std::nullopt);
  EXPECT_EQ(busy_seconds("", {0}), std::nullopt);
  EXPECT_EQ(busy_seconds("cpu0 1 2\n", {0}), std::nullopt);
}

TEST(CoreUseTest, OthersHaveWhatTheJobHasNot) {
  const CoreUse begin{.time = 10, .busy_seconds = 100, .own_seconds = 1, .cores = 4};
  const CoreUse end{.time = 20, .busy_seconds = 130, .own_seconds = 11, .cores = 4};
  EXPECT_THAT(load_of_others(begin, end, 20), Optional(0.25));
  EXPECT_THAT(load_of_others(begin, end, 31), Optional(0.0)) << "the kernel counts in ticks";
  EXPECT_EQ(load_of_others(begin, {.time = 10.4, .busy_seconds = 101, .cores = 4}, 0), std::nullopt) << "too short";
}

TEST(CoreUseTest, OwnWorkIsCounted) {
  const auto begin = sample_core_use();
  if (!begin) return;  // A kernel without /proc/stat
  const double end = monotonic_seconds() + 0.05;
  while (monotonic_seconds() < end) {
  }
  EXPECT_GT(sample_core_use()->own_seconds, begin->own_seconds);
  EXPECT_GE(sample_core_use()->busy_seconds, begin->busy_seconds);
}

}  // namespace
}  // namespace chimera
