#include "search/branch_and_bound.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "search/list_scheduling.h"
#include "search/makespan_bound.h"
#include "search/problems.h"

namespace chimera {
namespace {

using testing::by_chance;
using testing::EveryOrder;

struct Case {
  PlacementKind kind;
  PipelineShape shape;
  bool split_backward;
};

/// Small enough to try every order of every worker: at most 8,000 combinations.
const std::vector<Case> kTiny = {
    {PlacementKind::Linear, {.stages = 2, .micro_batches = 2}, true},
    {PlacementKind::Linear, {.stages = 3, .micro_batches = 2}, true},
    {PlacementKind::Linear, {.stages = 2, .micro_batches = 3}, false},
    {PlacementKind::Bidirectional, {.stages = 2, .micro_batches = 2}, true},
    {PlacementKind::Bidirectional, {.stages = 2, .micro_batches = 3}, false},
    {PlacementKind::Bidirectional, {.stages = 4, .micro_batches = 2}, false},
    {PlacementKind::Wave, {.stages = 2, .micro_batches = 1, .waves = 1}, true},
    {PlacementKind::Wave, {.stages = 1, .micro_batches = 2, .waves = 1}, false},
    {PlacementKind::Linear, {.stages = 2, .micro_batches = 1, .slices = 3}, true},
    {PlacementKind::Linear, {.stages = 2, .micro_batches = 2, .slices = 2}, false},
    {PlacementKind::Bidirectional, {.stages = 2, .micro_batches = 2, .slices = 2}, false},
};

/// A placeholder solution that is worse than any schedule: all ops in sequence.
Solution longest(const Instance& instance) {
  double sum = 1;
  for (const OpQueue& queue : instance.queues) sum += queue.count * (queue.duration + queue.delay);
  return {{}, sum};
}

/// The facts that hold in every schedule.
WindowState everything(const Instance& instance) { return Windows(instance).at_start(); }

/// Searches all four quarters of the tree without a start, so branching must find everything. Each quarter uses the
/// best solution of the earlier quarters; deadlines therefore differ between quarters.
Solution solved(const SearchProblem& problem) {
  const Instance instance = make_instance(problem);
  Solution best = longest(instance);
  const double any = best.makespan;
  for (const std::int64_t part : {0, 1, 2, 3}) {
    Budget budget(std::nullopt, 200'000 * kTimedForAState);
    EXPECT_TRUE(BranchAndBound(instance, any, everything(instance), part, 2).run(best, Phase(budget)));
  }
  return best;
}

/// The best of both halves of the tree if only the second half is given the makespan `told`.
double solved_apart(const SearchProblem& problem, double told) {
  const Instance instance = make_instance(problem);
  const double any = longest(instance).makespan;
  double least = any;
  for (const std::int64_t part : {0, 1}) {
    Solution best{{}, part == 0 ? any : told};
    Budget budget(std::nullopt, 200'000 * kTimedForAState);
    EXPECT_TRUE(BranchAndBound(instance, any, everything(instance), part, 1).run(best, Phase(budget)));
    if (!best.orders.empty()) least = std::min(least, best.makespan);
  }
  return least;
}

double raised(const Instance& instance, double makespan) {
  Budget budget(std::nullopt, 400 * kTimedForAState);
  return raise_bound(instance, least_makespan(instance), makespan, Phase(budget)).bound;
}

class SmallProblemTest : public ::testing::TestWithParam<std::size_t> {};

TEST_P(SmallProblemTest, ExactIsTheBestOfAllOrders) {
  const auto& [kind, shape, split_backward] = kTiny[GetParam()];
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const SearchProblem problem = by_chance(kind, shape, split_backward, seed);
    const Instance instance = make_instance(problem);
    const Solution exact = solved(problem);
    const double shortest = EveryOrder(problem).shortest_makespan();
    EXPECT_NEAR(exact.makespan, shortest, 1e-9) << seed;
    testing::expect_sound(problem, to_schedule(problem, exact.orders), exact.makespan);
    EXPECT_NEAR(solved_apart(problem, 1.02 * shortest), shortest, 1e-9) << seed;
    EXPECT_LE(least_makespan(instance), shortest + 1e-9) << seed;
    EXPECT_LE(raised(instance, shortest), shortest + 1e-9) << seed;
    EXPECT_LE(raised(instance, longest(instance).makespan), shortest + 1e-9) << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(, SmallProblemTest, ::testing::Range<std::size_t>(0, kTiny.size()));

TEST(BranchAndBoundTest, ContinuesAfterAnInterruption) {
  int steps = 0;
  constexpr int kProblems = 6;
  for (std::uint64_t seed = 0; seed < kProblems; ++seed) {
    const SearchProblem problem = by_chance(PlacementKind::Linear, {.stages = 3, .micro_batches = 2}, true, seed);
    const Instance instance = make_instance(problem);
    Solution at_once = longest(instance);
    Budget all(std::nullopt, 200'000 * kTimedForAState);
    EXPECT_TRUE(BranchAndBound(instance, at_once.makespan, everything(instance)).run(at_once, Phase(all)));
    Solution in_steps = longest(instance);
    BranchAndBound search(instance, in_steps.makespan, everything(instance));
    for (bool done = false; !done; ++steps) {
      Budget one(std::nullopt, 1);
      done = search.run(in_steps, Phase(one));
    }
    EXPECT_EQ(in_steps.orders, at_once.orders) << seed;
    EXPECT_EQ(in_steps.makespan, at_once.makespan) << seed;
  }
  EXPECT_GT(steps, kProblems);
}

TEST(BranchAndBoundTest, RefusesOpsThatTakeNoTime) {
  const PipelineShape shape{.stages = 4, .micro_batches = 4};
  const auto exact = [&](const StageCosts& costs) {
    return can_be_exact(make_instance(testing::alike(PlacementKind::Bidirectional, shape, costs)));
  };
  EXPECT_TRUE(exact(testing::split(1, 1, 1)));
  EXPECT_FALSE(exact(testing::split(1, 1, 0)));
  EXPECT_FALSE(can_be_exact(make_instance(testing::eight_stages(32, 2, 0.1)))) << "too large";
}

}  // namespace
}  // namespace chimera
