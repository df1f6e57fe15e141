#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "core/error.h"
#include "support/generators.h"
#include "support/schedules.h"

namespace chimera {
namespace {

using testing::SplitCosts;

TEST(ZbVTest, TheWayUpEndsWhereTheWayDownBegins) {
  const auto& workers = zb_v({3, 5}).placement.worker_of;
  EXPECT_THAT(workers, ::testing::ElementsAre(::testing::ElementsAre(WorkerId(0), WorkerId(1), WorkerId(2), WorkerId(2),
                                                                     WorkerId(1), WorkerId(0))));
}

/// I at least F and W: the published forms hold.
constexpr std::array kZbVCosts = {SplitCosts{1, 1, 1}, SplitCosts{1, 1.25, 0.75}, SplitCosts{1, 2, 1},
                                  SplitCosts{1, 1.5, 1.5}, SplitCosts{0.5, 1, 0.25}};

TEST(ZbVTest, BubblesAreTheClosedForms) {
  for (std::int64_t depth = 1; depth <= 10; ++depth) {
    for (std::int64_t n = 2 * depth - 1; n <= 2 * depth + 6; ++n) {
      for (const auto& [f, i, w] : kZbVCosts) {
        const Timeline timeline = testing::timed(zb_v({depth, n}), SplitCosts{f, i, w});
        const auto others = static_cast<double>(depth - 1);
        const std::string where = testing::describe("zb-v", {depth, n}) + " I=" + std::to_string(i);
        EXPECT_DOUBLE_EQ(timeline.makespan, static_cast<double>(n) * (f + i + w) + others * std::max(i / 2, i - w))
            << where;
        double bubble = 0;
        for (std::size_t worker = 0; worker < timeline.workers.size(); ++worker) {
          bubble = std::max(bubble, testing::inner_bubble(timeline, worker));
        }
        EXPECT_NEAR(bubble, others * std::max(i - w, (i - f) / 2), 1e-9) << where;
      }
    }
  }
}

TEST(ZbVTest, EveryWorkerHoldsTwiceDepthStages) {
  for (std::int64_t depth = 1; depth <= 10; ++depth) {
    for (const std::int64_t n : {2 * depth - 1, 2 * depth, 4 * depth}) {
      for (const auto& worker : testing::timed(zb_v({depth, n}), 1, 2).workers) {
        EXPECT_EQ(worker.peak_in_flight, std::min(2 * depth, 2 * n)) << testing::describe("zb-v", {depth, n});
      }
    }
  }
}

TEST(ZbVTest, MakespansOfTheComparisonTable) {
  const auto makespan = [](const PipelineShape& shape, const SplitCosts& costs, double latency) {
    return testing::timed(zb_v(shape), costs, latency).makespan;
  };
  EXPECT_DOUBLE_EQ(makespan({4, 4}, {1, 1, 1}, 0), 15);
  EXPECT_DOUBLE_EQ(makespan({8, 8}, {1, 1, 1}, 0), 31);
  EXPECT_NEAR(makespan({8, 8}, {1, 1, 1}, 0.1), 33.8, 1e-9);
  EXPECT_NEAR(makespan({8, 8}, {1, 1, 1}, 0.3), 39.4, 1e-9);
  EXPECT_NEAR(makespan({8, 8}, {1, 1, 1}, 0.5), 45, 1e-9);
  EXPECT_NEAR(makespan({8, 8}, {1, 1.3, 0.7}, 0.1), 35.9, 1e-9);
  EXPECT_NEAR(makespan({8, 8}, {1, 1.3, 0.7}, 0.3), 41.5, 1e-9);
  EXPECT_DOUBLE_EQ(makespan({8, 16}, {1, 1, 1}, 0), 51.5);
  EXPECT_NEAR(makespan({8, 16}, {1, 1.3, 0.7}, 0.1), 56.2, 1e-9);
  EXPECT_NEAR(makespan({8, 32}, {1, 1.3, 0.7}, 0.1), 104.2, 1e-9);
}

TEST(ZbVTest, FewMicroBatchesRunLikeTheFirstOfMany) {
  constexpr std::int64_t kDepth = 4;
  const Schedule full = zb_v({kDepth, 2 * kDepth - 1});
  for (std::int64_t n = 1; n < 2 * kDepth - 1; ++n) {
    auto workers = full.workers;
    for (auto& ops : workers) std::erase_if(ops, [&](const Op& op) { return op.micro_batch.value() >= n; });
    EXPECT_EQ(zb_v({kDepth, n}).workers, workers) << "N=" << n;
  }
}

TEST(ZbVTest, FewMicroBatchesOnManyStagesAreFast) { EXPECT_EQ(num_ops(zb_v({100'000, 1})), 600'000); }

TEST(ZbVTest, RejectsInvalidShapes) {
  EXPECT_THROW((void)zb_v({0, 4}), ConfigError);
  EXPECT_THROW((void)zb_v({4, 0}), ConfigError);
  EXPECT_THROW((void)zb_v({1'000'000, 17}), ConfigError);  // 1.02e8 ops
}

}  // namespace
}  // namespace chimera
