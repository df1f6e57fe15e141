#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "support/generators.h"
#include "support/schedules.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::SplitCosts;

PipelineShape interleaved_shape(std::int64_t stages, std::int64_t micro_batches, std::int64_t chunks) {
  return {.stages = stages, .micro_batches = micro_batches, .chunks = chunks};
}

TEST(InterleavedTest, StagesAreAssignedRoundRobin) {
  const Schedule schedule = interleaved_one_f_one_b(interleaved_shape(2, 2, 3));
  EXPECT_EQ(schedule.stages, 6);
  EXPECT_THAT(schedule.placement.worker_of,
              ElementsAre(ElementsAre(WorkerId(0), WorkerId(1), WorkerId(0), WorkerId(1), WorkerId(0), WorkerId(1))));
}

TEST(InterleavedTest, MakespanOfFullGroupsIsTheClosedForm) {
  for (std::int64_t d = 1; d <= 8; ++d) {
    for (std::int64_t groups = 1; groups <= 4; ++groups) {
      for (std::int64_t v = 1; v <= 4; ++v) {
        for (const double b : {0.5, 1.0, 2.0, 3.5}) {
          const PipelineShape asked = interleaved_shape(d, groups * d, v);
          const double ops = static_cast<double>(groups * d) + static_cast<double>(d - 1) / static_cast<double>(v);
          EXPECT_NEAR(testing::timed(interleaved_one_f_one_b(asked), 1, b).makespan, ops * (1 + b), 1e-9)
              << testing::describe("interleaved-1f1b", asked) << " B=" << b;
        }
      }
    }
  }
}

TEST(InterleavedTest, MakespansOfTheComparisonTable) {
  const auto makespan = [](std::int64_t d, std::int64_t n, const SplitCosts& costs, double latency) {
    return testing::timed(interleaved_one_f_one_b(interleaved_shape(d, n, 2)), costs, latency).makespan;
  };
  EXPECT_DOUBLE_EQ(makespan(4, 4, {1, 1, 1}, 0), 16.5);
  EXPECT_DOUBLE_EQ(makespan(8, 8, {1, 1, 1}, 0), 34.5);
  EXPECT_DOUBLE_EQ(makespan(8, 16, {1, 1, 1}, 0), 58.5);
  EXPECT_NEAR(makespan(8, 8, {1, 1, 1}, 0.1), 37.5, 0.05);
  EXPECT_NEAR(makespan(8, 8, {1, 1.3, 0.7}, 0.1), 37.5, 0.05);
  EXPECT_NEAR(makespan(8, 16, {1, 1.3, 0.7}, 0.1), 61.5, 0.05);
  EXPECT_NEAR(makespan(8, 32, {1, 1.3, 0.7}, 0.1), 109.5, 0.05);
}

TEST(InterleavedTest, FirstWorkersHoldMost) {
  for (const PipelineShape& asked : testing::small_shapes("interleaved-1f1b", 8)) {
    const auto [d, n, v] = std::tuple(asked.stages, asked.micro_batches, asked.chunks);
    const std::int64_t group = n / std::max<std::int64_t>(1, n / d);
    const Timeline timeline = testing::timed(interleaved_one_f_one_b(asked), 1, 2);
    for (std::int64_t r = 0; r < d; ++r) {
      EXPECT_EQ(timeline.workers[static_cast<std::size_t>(r)].peak_in_flight,
                std::min(2 * (d - 1 - r) + (v - 1) * group + 1, n * v))
          << testing::describe("interleaved-1f1b", asked) << " worker " << r;
    }
  }
}

TEST(InterleavedTest, GroupsGrowIfDepthDoesNotDivideN) {
  EXPECT_THAT(testing::orders(interleaved_one_f_one_b(interleaved_shape(2, 3, 2))),  // one group of 3
              ElementsAre("F0 F1 F2 F0 F1 F2 B0 B1 B2 B0 B1 B2", "F0 F1 F2 F0 B0 F1 B1 F2 B2 B0 B1 B2"));
}

TEST(InterleavedTest, AcceptsCountsThatSplitIntoEqualGroups) {
  const auto accepted = [](std::int64_t d) {
    std::vector<std::int64_t> counts;
    for (const PipelineShape& asked : testing::small_shapes("interleaved-1f1b", d)) {
      if (asked.stages == d && asked.chunks == 2) counts.push_back(asked.micro_batches);
    }
    return counts;
  };
  EXPECT_THAT(accepted(4), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 10, 12));
}

void expect_interleaved_rejected(const PipelineShape& asked, const char* what) {
  try {
    (void)interleaved_one_f_one_b(asked);
    ADD_FAILURE() << "accepted " << testing::describe("interleaved-1f1b", asked);
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr(what));
  }
}

TEST(InterleavedTest, RejectsInvalidShapesAndSuggestsValidOnes) {
  expect_interleaved_rejected({4, 9}, "--micro-batches must be a multiple of N div D = 2, not 9");
  expect_interleaved_rejected(interleaved_shape(4, 4, 0), "--chunks must be at least 1, not 0");
  expect_interleaved_rejected({0, 4}, "--stages must be at least 1");
  expect_interleaved_rejected({4, 0}, "--micro-batches must be at least 1");
  expect_interleaved_rejected(interleaved_shape(4, 4, 1'000'000'000'000'000'000), "more than 100000000 ops");
  expect_interleaved_rejected(interleaved_shape(10'000, 4'000, 2), "more than 100000000 ops");
}

}  // namespace
}  // namespace chimera
