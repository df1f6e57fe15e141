#include "search/branch_and_bound.h"

#include <gtest/gtest.h>

#include "search/list_scheduling.h"
#include "search/lower_bound.h"
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

/// Small enough to try every order of every worker: at most 8,000 of all together.
const std::vector<Case> kTiny = {
    {PlacementKind::Linear, {.stages = 2, .micro_batches = 2}, true},
    {PlacementKind::Linear, {.stages = 3, .micro_batches = 2}, true},
    {PlacementKind::Linear, {.stages = 2, .micro_batches = 3}, false},
    {PlacementKind::Bidirectional, {.stages = 2, .micro_batches = 2}, true},
    {PlacementKind::Bidirectional, {.stages = 2, .micro_batches = 3}, false},
    {PlacementKind::Bidirectional, {.stages = 4, .micro_batches = 2}, false},
    {PlacementKind::Wave, {.stages = 2, .micro_batches = 1, .waves = 1}, true},
    {PlacementKind::Wave, {.stages = 1, .micro_batches = 2, .waves = 1}, false},
};

/// Without a start: everything must be found by branching.
ExactResult solved(const SearchProblem& problem) {
  Budget budget(std::nullopt, 2'000'000);
  return branch_and_bound(make_instance(problem), {{}, kStuck}, Phase(budget));
}

class SmallProblemTest : public ::testing::TestWithParam<std::size_t> {};

TEST_P(SmallProblemTest, ExactIsTheBestOfAllOrders) {
  const auto& [kind, shape, split_backward] = kTiny[GetParam()];
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const SearchProblem problem = by_chance(kind, shape, split_backward, seed);
    const ExactResult exact = solved(problem);
    const double shortest = EveryOrder(problem).shortest_makespan();
    ASSERT_TRUE(exact.proven);
    EXPECT_NEAR(exact.best.makespan, shortest, 1e-9) << seed;
    testing::expect_sound(problem, to_schedule(problem, exact.best.orders), exact.best.makespan);
    EXPECT_LE(LowerBound(make_instance(problem)).at_start(), shortest + 1e-9) << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(, SmallProblemTest, ::testing::Range<std::size_t>(0, kTiny.size()));

TEST(BranchAndBoundTest, SaysWhenItWasCutShort) {
  const SearchProblem problem = testing::eight_stages(8, 2, 0.1);
  const Instance instance = make_instance(problem);
  RandomSource random(0);
  Orders orders = orders_by_rule(instance, {}, random);
  const double makespan = Evaluator(instance).makespan(orders);
  Budget budget(std::nullopt, 3);
  const ExactResult result = branch_and_bound(instance, {std::move(orders), makespan}, Phase(budget));
  EXPECT_FALSE(result.proven);
  EXPECT_LE(result.best.makespan, makespan);
}

}  // namespace
}  // namespace chimera
