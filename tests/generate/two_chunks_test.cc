// Schedules with two chunks of the model on a worker (generate/two_chunks.cc).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "support/generators.h"
#include "support/schedules.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
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
        EXPECT_NEAR(testing::largest_inner_bubble(timeline), others * std::max(i - w, (i - f) / 2), 1e-9) << where;
      }
    }
  }
}

TEST(ZbVTest, EveryWorkerHoldsTwiceDepthStages) {
  for (std::int64_t depth = 1; depth <= 10; ++depth) {
    for (const std::int64_t n : {2 * depth - 1, 2 * depth, 4 * depth})
      testing::expect_in_flight("zb-v", {depth, n}, 2 * depth, 2);
  }
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

TEST(VHalfTest, OrdersAtDepthFour) {
  EXPECT_THAT(testing::ops(v_half({4, 4})),
              ElementsAre("0F0 0F1 7F0 0F2 7I0 7W0 7F1 0F3 7I1 7W1 7F2 0I0 7I2 0W0 7F3 7W2 0I1 7I3 0W1 7W3 0I2 0W2 "
                          "0I3 0W3",
                          "1F0 1F1 6F0 1F2 6F1 6I0 6W0 1F3 6F2 6I1 6W1 1I0 1W0 6F3 6I2 6W2 1I1 1W1 6I3 6W3 1I2 1W2 "
                          "1I3 1W3",
                          "2F0 5F0 2F1 5F1 2F2 5I0 5W0 5F2 2F3 2I0 5I1 2W0 5F3 5W1 2I1 5I2 2W1 5W2 2I2 5I3 2W2 5W3 "
                          "2I3 2W3",
                          "3F0 4F0 3F1 4F1 3F2 4F2 4I0 4W0 3I0 3W0 3F3 4F3 4I1 4W1 3I1 3W1 4I2 4W2 3I2 3W2 4I3 4W3 "
                          "3I3 3W3"));
}

TEST(VMinTest, OrdersAtDepthFour) {
  EXPECT_THAT(testing::ops(v_min({4, 4})),
              ElementsAre("0F0 0F1 7F0 7I0 7W0 0F2 7F1 7I1 0I0 7W1 0W0 0F3 7F2 7I2 0I1 7W2 0W1 7F3 7I3 0I2 7W3 0W2 "
                          "0I3 0W3",
                          "1F0 6F0 1F1 6I0 6W0 6F1 1F2 1I0 6I1 1W0 6W1 6F2 1F3 1I1 6I2 1W1 6W2 6F3 1I2 6I3 1W2 6W3 "
                          "1I3 1W3",
                          "2F0 5F0 2F1 5I0 5F1 5W0 2I0 2F2 2W0 5I1 5F2 5W1 2I1 2F3 2W1 5I2 5F3 5W2 2I2 2W2 5I3 5W3 "
                          "2I3 2W3",
                          "3F0 4F0 3F1 4F1 4I0 3I0 4W0 3W0 3F2 4F2 4I1 3I1 4W1 3W1 3F3 4F3 4I2 3I2 4W2 3W2 4I3 3I3 "
                          "4W3 3W3"));
}

TEST(WavePatternTest, BubbleAndActivationsAreTheClosedForms) {
  for (std::int64_t depth = 2; depth <= 16; ++depth) {
    const auto d = static_cast<double>(depth);
    for (const std::int64_t n : {depth, 2 * depth, 3 * depth + 1}) {
      const auto expect = [&](const char* name, double bubble, std::int64_t most) {
        const Timeline timeline = testing::timed(find_generator(name).generate({depth, n}), SplitCosts{1, 1, 1});
        EXPECT_NEAR(timeline.makespan, static_cast<double>(3 * n) + bubble, 1e-9)
            << testing::describe(name, {depth, n});
        EXPECT_EQ(testing::most_in_flight(timeline), 2 * most) << testing::describe(name, {depth, n});
      };
      expect("v-half", depth % 2 == 0 ? 1.75 * d - 1 : 1.75 * (d - 1), (depth + 2) / 2);
      expect("v-min", 2 * d - (depth % 3 == 0 ? 1.5 : 2.5), (depth + 4) / 3);
    }
  }
}

}  // namespace
}  // namespace chimera
