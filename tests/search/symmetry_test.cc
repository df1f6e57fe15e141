#include "search/problem_forms.h"

#include <gtest/gtest.h>

#include "search/list_scheduling.h"
#include "search/problems.h"

namespace chimera {
namespace {

using testing::alike;
using testing::split;

std::optional<FoldedProblem> folded(const PipelineShape& shape, double max_in_flight = 0) {
  return fold(alike(PlacementKind::Bidirectional, shape, split(1, 1, 1), 0, max_in_flight));
}

TEST(SymmetryTest, JoinsSymmetricWorkers) {
  const auto two = folded({.stages = 4, .micro_batches = 4});
  ASSERT_TRUE(two);
  EXPECT_EQ(two->worker, (std::vector<std::size_t>{0, 1, 1, 0}));
  const auto four = folded({.stages = 8, .micro_batches = 8, .pipelines = 4});
  ASSERT_TRUE(four);
  EXPECT_EQ(four->worker, (std::vector<std::size_t>{0, 1, 1, 0, 0, 1, 1, 0}));
  const auto chunks = folded({.stages = 4, .micro_batches = 4, .chunks = 2});
  ASSERT_TRUE(chunks);
  EXPECT_EQ(chunks->worker, (std::vector<std::size_t>{0, 1, 1, 0}));
}

TEST(SymmetryTest, ExistsOnlyIfReplicasAreAlike) {
  EXPECT_FALSE(folded({.stages = 4, .micro_batches = 3})) << "one replica has a micro-batch more";
  EXPECT_FALSE(folded({.stages = 4, .micro_batches = 4}, 1)) << "no room for a micro-batch of both at once";
  EXPECT_FALSE(fold(alike(PlacementKind::Linear, {.stages = 4, .micro_batches = 4}, split(1, 1, 1))));
  SearchProblem problem = alike(PlacementKind::Bidirectional, {.stages = 4, .micro_batches = 4}, split(1, 1, 1), 0, 4);
  problem.limits[0].room_of_worker[3] = 3;
  EXPECT_FALSE(fold(problem)) << "worker 3 has less room than worker 0";
}

TEST(SymmetryTest, UnfoldedOrdersAreASchedule) {
  for (const std::int64_t pipelines : {2, 4, 8}) {
    for (const std::int64_t micro_batches : {8, 24}) {
      const SearchProblem problem =
          alike(PlacementKind::Bidirectional, {.stages = 8, .micro_batches = micro_batches, .pipelines = pipelines},
                split(1, 1.3, 0.7), 0.1, 9);
      const auto joined = fold(problem);
      ASSERT_TRUE(joined);
      RandomSource random(1);
      const Orders orders = orders_by_rule(joined->instance, {}, random);
      const Orders unfolded = unfold(problem, *joined, orders);
      testing::expect_sound(problem, to_schedule(problem, unfolded), Evaluator(joined->instance).makespan(orders));
      EXPECT_EQ(fold_orders(problem, *joined, unfolded), orders);
    }
  }
}

}  // namespace
}  // namespace chimera
