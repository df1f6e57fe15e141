#include "search/windows.h"

#include <gtest/gtest.h>

#include <utility>

#include "core/random.h"
#include "search/lower_bound.h"
#include "search/problems.h"

namespace chimera {
namespace {

/// Decides pair after pair by chance until that is refuted, or all are decided. Whether it was refuted.
bool dives(Windows& windows, WindowState state, double deadline, std::uint64_t seed) {
  const CounterRandom random(seed, "dive");
  for (std::uint64_t step = 0;; ++step) {
    auto choice = windows.tightest_choice(state);
    if (!choice) return false;
    if (random.below(step, 2) == 0) std::swap(choice->first, choice->second);
    if (!windows.narrow(state, deadline, *choice)) return true;
  }
}

TEST(WindowsTest, WhatWasRefutedLeavesNothingBehind) {
  const Instance instance =
      make_instance(testing::by_chance(PlacementKind::Bidirectional, {.stages = 6, .micro_batches = 8}, true, 1));
  const double deadline = 1.05 * LowerBound(instance).at_start();
  WindowState fresh = Windows(instance).at_start();
  ASSERT_TRUE(Windows(instance).narrow(fresh, deadline));
  Windows used(instance);
  int refuted = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    WindowState state = used.at_start();
    ASSERT_TRUE(used.narrow(state, deadline));
    EXPECT_EQ(state.head, fresh.head) << seed;
    EXPECT_EQ(state.before, fresh.before) << seed;
    refuted += dives(used, std::move(state), deadline, seed) ? 1 : 0;
  }
  EXPECT_GT(refuted, 100);
}

}  // namespace
}  // namespace chimera
