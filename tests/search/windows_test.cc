#include "search/windows.h"

#include <gtest/gtest.h>

#include <utility>

#include "core/random.h"
#include "search/makespan_bound.h"
#include "search/problems.h"

namespace chimera {
namespace {

/// Two replicas on four workers with five micro-batches; a worker holds at most four.
SearchProblem small_problem() {
  SearchProblem problem = testing::alike(PlacementKind::Bidirectional, {.stages = 4, .micro_batches = 5}, {}, 0.3, 4);
  problem.costs.stages = {testing::split(0.9, 1.2, 0.8), testing::split(1.1, 1.2, 0.9), testing::split(1.0, 1.3, 0.7),
                          testing::split(1.2, 1.0, 1.1)};
  return problem;
}

/// Decides random pairs until a contradiction, or until all are decided. Returns whether there was a contradiction.
bool dives(Windows& windows, WindowState state, double deadline, std::uint64_t seed) {
  const CounterRandom random(seed, "dive");
  for (std::uint64_t step = 0;; ++step) {
    auto choice = windows.tightest_choice(state);
    if (!choice) return false;
    if (random.below(step, 2) == 0) std::swap(choice->first, choice->second);
    if (!windows.narrow(state, deadline, *choice)) return true;
  }
}

TEST(WindowsTest, RefutedStatesLeaveNoTrace) {
  const Instance instance =
      make_instance(testing::by_chance(PlacementKind::Bidirectional, {.stages = 6, .micro_batches = 8}, true, 1));
  const double deadline = 1.05 * least_makespan(instance);
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

TEST(WindowsTest, ProbingRefutesMoreThanNarrowing) {
  const Instance instance = make_instance(small_problem());
  Windows windows(instance);
  Budget budget(std::nullopt, 10'000 * kTimedForAState);
  int more = 0;
  const double bound = least_makespan(instance);
  for (double deadline = bound; deadline < 1.1 * bound; deadline *= 1.002) {
    WindowState narrowed = windows.at_start();
    WindowState probed = windows.at_start();
    const bool may_be = windows.narrow(narrowed, deadline);
    const bool may_still_be = windows.probe(probed, deadline, Phase(budget));
    EXPECT_TRUE(may_be || !may_still_be);
    more += may_be && !may_still_be ? 1 : 0;
  }
  EXPECT_GT(more, 5);
}

}  // namespace
}  // namespace chimera
