#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "check/check_schedule.h"
#include "core/error.h"
#include "support/generators.h"
#include "support/schedules.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;

PipelineShape combined_shape(std::int64_t stages, std::int64_t micro_batches, std::int64_t chunks) {
  return {.stages = stages, .micro_batches = micro_batches, .chunks = chunks};
}

std::size_t num_pairs(const std::vector<Op>& ops) {
  return static_cast<std::size_t>(std::ranges::count_if(ops, &Op::paired));
}

TEST(CombinedTest, EveryTurnIsAPair) {
  const Schedule schedule = combined_one_f_one_b(combined_shape(2, 4, 1));
  EXPECT_THAT(testing::ops(schedule),
              ElementsAre("0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3", "1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3"));
  EXPECT_EQ(num_pairs(schedule.workers[0]), 1U);
  EXPECT_EQ(num_pairs(schedule.workers[1]), 3U);
}

TEST(CombinedTest, InOrderItIsAsFastAsInterleaved1F1BAndHoldsOneMore) {
  for (const PipelineShape& asked : testing::small_shapes("combined-1f1b", 6)) {
    const Timeline timeline = testing::timed(combined_one_f_one_b(asked), 1, 2);
    if (asked.micro_batches % asked.stages == 0) {
      EXPECT_DOUBLE_EQ(timeline.makespan, testing::timed(interleaved_one_f_one_b(asked), 1, 2).makespan)
          << testing::describe("combined-1f1b", asked);
    }
    const std::int64_t group = asked.micro_batches / std::max<std::int64_t>(1, asked.micro_batches / asked.stages);
    for (std::int64_t r = 0; r < asked.stages; ++r) {
      EXPECT_EQ(
          timeline.workers[static_cast<std::size_t>(r)].peak_in_flight,
          std::min(2 * (asked.stages - 1 - r) + (asked.chunks - 1) * group + 2, asked.micro_batches * asked.chunks));
    }
  }
}

TEST(CombinedTest, JointPairsSaveTimeInEveryTurn) {
  for (const std::int64_t d : {1, 2, 4, 8}) {
    for (const std::int64_t v : {1, 2, 3}) {
      for (const std::int64_t n : {2 * d, 4 * d}) {
        const Schedule schedule = combined_one_f_one_b(combined_shape(d, n, v));
        ASSERT_TRUE(check(schedule).empty());
        for (const double together : {2.0, 2.4, 3.0}) {
          CostModel costs = CostModel::uniform(schedule, testing::costs(1, 2));
          costs.pair = together / 3;
          const auto chunks = static_cast<double>(v);
          const double in_order = static_cast<double>(n) * 3 + static_cast<double>(d - 1) * 3 / chunks;
          const auto pairs = static_cast<double>(n * v - (v - 1) * d - 1);
          EXPECT_NEAR(simulate(schedule, costs).makespan, in_order - pairs * (3 - together) / chunks, 1e-9)
              << testing::describe("combined-1f1b", combined_shape(d, n, v)) << " F&B=" << together;
        }
      }
    }
  }
}

TEST(CombinedTest, RejectsShapesThatInterleaved1F1BRejects) {
  EXPECT_THROW((void)combined_one_f_one_b(combined_shape(4, 9, 2)), ConfigError);
  EXPECT_THROW((void)combined_one_f_one_b(combined_shape(4, 0, 2)), ConfigError);
}

}  // namespace
}  // namespace chimera
