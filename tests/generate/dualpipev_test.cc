#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "core/error.h"
#include "support/generators.h"
#include "support/schedules.h"

namespace chimera {
namespace {

using testing::SplitCosts;

/// (F, I, W) with W <= I <= F <= I + W.
constexpr std::array kDualpipevCosts = {SplitCosts{1, 1, 1}, SplitCosts{1, 0.75, 0.5}, SplitCosts{2, 1.5, 1},
                                        SplitCosts{2, 1, 1}, SplitCosts{1, 1, 0}};

TEST(DualpipevTest, BubbleIsTheClosedForm) {
  for (std::int64_t depth = 1; depth <= 8; ++depth) {
    for (std::int64_t n = 2 * depth; n <= 3 * depth + 3; ++n) {
      for (const auto& [f, i, w] : kDualpipevCosts) {
        const Timeline timeline = testing::timed(dualpipev({depth, n}), SplitCosts{f, i, w});
        EXPECT_DOUBLE_EQ(timeline.makespan,
                         static_cast<double>(n) * (f + i + w) + static_cast<double>(depth - 1) * (f + i - w) / 2)
            << testing::describe("dualpipev", {depth, n}) << " F=" << f << " I=" << i << " W=" << w;
      }
    }
  }
}

TEST(DualpipevTest, EveryWorkerHoldsTwiceDepthAndOneStages) {
  for (std::int64_t depth = 1; depth <= 8; ++depth) {
    for (const auto& worker : testing::timed(dualpipev({depth, 3 * depth}), 1, 2).workers) {
      EXPECT_EQ(worker.peak_in_flight, 2 * depth + 1);
    }
  }
}

TEST(DualpipevTest, IsTheFirstHalfOfDualpipesWorkers) {
  const Schedule folded = dualpipev({4, 9});
  const Schedule whole = dualpipe({8, 18});
  for (std::size_t w = 0; w < 4; ++w) {
    auto ops = whole.workers[w];
    for (Op& op : ops) {
      op.micro_batch = MicroBatchId(op.micro_batch.value() % 9);
      op.replica = ReplicaId(0);
    }
    EXPECT_EQ(folded.workers[w], ops);
  }
}

TEST(DualpipevTest, RejectsInvalidShapesAndSuggestsValidOnes) {
  try {
    (void)dualpipev({4, 7});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("--micro-batches must be at least 2D = 8, not 7"));
  }
  EXPECT_THROW((void)dualpipev({0, 7}), ConfigError);
}

}  // namespace
}  // namespace chimera
