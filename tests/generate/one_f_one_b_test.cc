#include <gtest/gtest.h>

#include "core/error.h"
#include "support/generators.h"
#include "support/schedules.h"

namespace chimera {
namespace {

TEST(OneFOneBTest, MakespanAndActivationsAreTheClosedForms) {
  for (const PipelineShape& shape : testing::small_shapes("1f1b")) {
    const Timeline timeline = testing::timed(one_f_one_b(shape), 1, 2);
    EXPECT_DOUBLE_EQ(timeline.makespan, 3 * testing::slots_of_flow(shape));
    for (std::int64_t s = 0; s < shape.stages; ++s) {
      EXPECT_EQ(timeline.workers[static_cast<std::size_t>(s)].peak_in_flight,
                std::min(shape.stages - 1 - s + shape.slices, shape.micro_batches * shape.slices));
    }
  }
}

TEST(OneFOneBTest, SlicesMeetTheLowerBound) {
  for (const std::int64_t k : {1, 2, 3, 4, 7, 8, 16}) {
    for (const std::int64_t d : {1, 2, 3, 5, 8}) {
      for (const std::int64_t n : {1, 2, 5, 8, 16}) {
        const PipelineShape shape{.stages = d, .micro_batches = n, .slices = k};
        const Timeline timeline = testing::timed(one_f_one_b(shape), 1, 2);
        EXPECT_NEAR(timeline.makespan, 3 * testing::slots_of_flow(shape), 1e-9) << testing::describe("1f1b", shape);
        EXPECT_NEAR(timeline.lower_bound, timeline.makespan, 1e-9) << testing::describe("1f1b", shape);
      }
    }
  }
}

TEST(OneFOneBTest, FirstWorkerOfEightHoldsElevenEighths) {
  const Schedule schedule = one_f_one_b({.stages = 4, .micro_batches = 8, .slices = 8});
  const Timeline timeline = testing::timed(schedule, 1, 2);
  EXPECT_EQ(timeline.workers[0].peak_in_flight, 11);
  EXPECT_EQ(micro_batches_in_flight(schedule, timeline.workers[0]), 1.375);
  EXPECT_EQ(timeline.workers[0].peak_stage_units, 1.375);
}

// The figures are of an independent simulation (D = 8, N = 16, k = 4).
TEST(OneFOneBTest, SlicesOfEqualTimesBeatSlicesOfEqualTokens) {
  const Schedule schedule = one_f_one_b({.stages = 8, .micro_batches = 16, .slices = 4});
  const auto makespan = [&](double attention, const std::vector<double>& bounds) {
    CostModel costs = CostModel::uniform(schedule, testing::costs(1, 2));
    costs.slices = {attention, bounds};
    return simulate(schedule, costs).makespan;
  };
  const std::vector<double> equal = {0, 0.25, 0.5, 0.75, 1};
  EXPECT_NEAR(makespan(0, equal), 53.25, 1e-9);
  EXPECT_NEAR(makespan(0.25, equal), 62.7, 0.05);
  EXPECT_NEAR(makespan(0.5, equal), 72.1, 0.05);
  for (const double attention : {0.0, 0.25, 0.5, 1.0}) {
    EXPECT_NEAR(makespan(attention, {}), 53.25, 1e-9);
    EXPECT_NEAR(makespan(attention, balanced_bounds(4, attention)), 53.25, 1e-9);
  }
}

TEST(OneFOneBTest, RejectsInvalidShapes) {
  EXPECT_THROW((void)one_f_one_b({4, 0}), ConfigError);
  EXPECT_THROW((void)one_f_one_b({-4, 4}), ConfigError);
}

}  // namespace
}  // namespace chimera
