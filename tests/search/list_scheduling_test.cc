#include "search/list_scheduling.h"

#include <gtest/gtest.h>

#include "search/problems.h"

namespace chimera {
namespace {

using testing::alike;
using testing::split;

struct ListCase {
  PlacementKind kind;
  PipelineShape shape;
};

const std::vector<ListCase> kCases = {
    {PlacementKind::Linear, {.stages = 5, .micro_batches = 7}},
    {PlacementKind::Bidirectional, {.stages = 8, .micro_batches = 16}},
    {PlacementKind::Bidirectional, {.stages = 6, .micro_batches = 7}},
    {PlacementKind::Bidirectional, {.stages = 8, .micro_batches = 20, .pipelines = 4}},
    {PlacementKind::Loop, {.stages = 3, .micro_batches = 8, .chunks = 3}},
    {PlacementKind::Wave, {.stages = 4, .micro_batches = 9, .waves = 2}},
    {PlacementKind::Linear, {.stages = 3, .micro_batches = 4, .slices = 3}},
    {PlacementKind::Bidirectional, {.stages = 4, .micro_batches = 5, .slices = 4}},
};

// Limits shared between pipelines could deadlock without memory reserved for the oldest micro-batch.
TEST(ListSchedulingTest, AlwaysEndsWithinTheLimit) {
  for (const auto& [kind, shape] : kCases) {
    for (const bool split_backward : {true, false}) {
      for (const double room : {1.0, 1.5, 2.0, 3.0, 5.0, 9.0}) {
        SearchProblem problem = alike(kind, shape, split(1, 1.3, 0.7), 0.1, room);
        problem.split_backward = split_backward;
        const Instance instance = make_instance(problem);
        RandomSource random(7);
        for (int i = 0; i < 12; ++i) {
          const Orders orders = orders_by_rule(instance, i == 0 ? ListRule() : random_rule(instance, random), random);
          ASSERT_TRUE(is_admissible(instance, orders)) << room;
          ASSERT_NE(Evaluator(instance).makespan(orders), kDeadlocked) << room;
        }
      }
    }
  }
}

TEST(ListSchedulingTest, WaitsForABetterOp) {
  // At time 2 worker 0 could start its third forward; its first input gradient arrives at 2.5.
  const SearchProblem problem = alike(PlacementKind::Linear, {.stages = 2, .micro_batches = 3}, split(1, 0.5, 0.5));
  const Instance instance = make_instance(problem);
  const auto third_op = [&](double window) {
    ListRule rule;
    rule.window = window;
    RandomSource random(0);
    return orders_by_rule(instance, rule, random)[0][2];
  };
  EXPECT_EQ(third_op(0), kForwardStep);
  EXPECT_EQ(third_op(1), kInputStep);
}

}  // namespace
}  // namespace chimera
