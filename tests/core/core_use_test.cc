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

/// A launcher (10) has two ranks. A shell (5) started it, and a program of another job (20) with a child (21).
TEST(CoreUseTest, NamesTheBusiestProcessOfOtherJobs) {
  const auto at = [](double time, double ranks, double python, double child) {
    return CoreUse{.time = time,
                   .processes = {{5, {1, "sh", 0}},
                                 {10, {5, "chimera", 1}},
                                 {11, {10, "chimera", ranks}},
                                 {12, {10, "chimera", ranks}},
                                 {20, {5, "python3", python}},
                                 {21, {20, "cc1", child}}}};
  };
  const CoreUse begin = at(0, 1, 50, 0);
  EXPECT_EQ(busiest_other(begin, at(2, 9, 51, 1.9), 11), "cc1 (process 21), 95 % of a core");
  EXPECT_EQ(busiest_other(begin, at(2, 9, 50.1, 0.1), 11), "") << "less than a tenth of a core";
  EXPECT_EQ(busiest_other(begin, at(2, 9, 50, 0), 20), "chimera (process 12), 400 % of a core");
  EXPECT_EQ(job_seconds(begin, at(2, 9, 51, 1.9), 12), 16);
  EXPECT_EQ(job_seconds(begin, at(2, 9, 51, 1.5), 20), 2.5);
}

TEST(CoreUseTest, OwnWorkIsCounted) {
  const auto begin = sample_core_use();
  if (!begin) return;  // A kernel without /proc/stat
  const double end = monotonic_seconds() + 0.1;
  while (monotonic_seconds() < end) {
  }
  EXPECT_GT(sample_core_use()->own_seconds, begin->own_seconds);
  const auto after = sample_core_use();
  EXPECT_GE(after->busy_seconds, begin->busy_seconds);
  EXPECT_EQ(after->processes.at(::getpid()).parent, ::getppid());
  EXPECT_GT(job_seconds(*begin, *after, ::getpid()), 0);
}

}  // namespace
}  // namespace chimera
