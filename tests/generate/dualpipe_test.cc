#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "support/generators.h"
#include "support/schedules.h"

namespace chimera {
namespace {

using testing::SplitCosts;

/// (F, I, W) with W <= I <= F <= I + W.
constexpr std::array kDualpipeCosts = {SplitCosts{1, 1, 1}, SplitCosts{1, 0.75, 0.5}, SplitCosts{2, 1.5, 1},
                                       SplitCosts{2, 1, 1}, SplitCosts{1, 1, 0}};

TEST(DualpipeTest, BubbleIsTheClosedForm) {
  for (std::int64_t depth = 2; depth <= 12; depth += 2) {
    for (std::int64_t n = 2 * depth; n <= 3 * depth + 2; n += 2) {
      for (const auto& [f, i, w] : kDualpipeCosts) {
        const Timeline timeline = testing::timed(dualpipe({depth, n}), SplitCosts{f, i, w});
        EXPECT_DOUBLE_EQ(timeline.makespan,
                         static_cast<double>(n) * (f + i + w) + static_cast<double>(depth / 2 - 1) * (f + i - w))
            << testing::describe("dualpipe", {depth, n}) << " F=" << f << " I=" << i << " W=" << w;
      }
    }
  }
}

/// Idle time of the first worker within the makespan if the F and B of a pair complete together in time `together`.
double bubble_of_pairs(const PipelineShape& shape, const SplitCosts& share, double together) {
  const Schedule schedule = dualpipe(shape);
  const auto& [f, i, w] = share;
  CostModel costs = CostModel::uniform(schedule, {f, i + w, i, w});
  costs.pair = together / (f + i + w);
  const Timeline timeline = simulate(schedule, costs);
  return timeline.makespan - timeline.workers.front().busy;
}

TEST(DualpipeTest, TheBubbleOfJointPairsIsThePublishedBubbleMinusTheirSavings) {
  for (std::int64_t depth = 4; depth <= 12; depth += 2) {
    for (const std::int64_t n : {2 * depth, 2 * depth + 2, 4 * depth}) {
      for (const auto& [f, i, w] : {SplitCosts{1, 1, 1}, SplitCosts{1, 1, 0.5}, SplitCosts{1, 1, 0}}) {
        const double in_order = f + i + w;
        for (const double together : {i + w, 0.8 * in_order, 0.9 * in_order, in_order}) {
          if (together < i + w) continue;  // a pair takes at least the time of its B
          const auto stages = static_cast<double>(depth / 2 - 1);
          const double published = stages * (together + (i + w) - 3 * w);
          EXPECT_NEAR(bubble_of_pairs({depth, n}, {f, i, w}, together),
                      published - (stages - 1) * (in_order - together), 1e-9)
              << testing::describe("dualpipe", {depth, n}) << " W=" << w << " F&B=" << together;
        }
      }
    }
  }
}

TEST(DualpipeTest, TheBubbleOfPairsIsBelowThePublishedBubbleIfInputGradientsTakeLonger) {
  for (const auto& [f, i, w] : {SplitCosts{1, 1.3, 0.7}, SplitCosts{1, 1.2, 1}, SplitCosts{1, 2, 1}}) {
    for (const double part : {0.8, 0.9, 1.0}) {
      const double together = part * (f + i + w);
      EXPECT_LT(bubble_of_pairs({8, 20}, {f, i, w}, together), 3 * (together + (i + w) - 3 * w));
    }
  }
}

/// Pairs of a worker, such as `0F8&3B12`.
std::vector<std::string> pairs_of(const std::vector<Op>& ops) {
  std::vector<std::string> pairs;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].paired) pairs.push_back(to_text(ops[i]) + "&" + to_text(ops[i + 1]));
  }
  return pairs;
}

TEST(DualpipeTest, PairsMatchTheStepList) {
  const Schedule schedule = dualpipe({4, 8});
  EXPECT_THAT(pairs_of(schedule.workers[0]), ::testing::ElementsAre("0F3&3B5", "3F6&0B0", "3F7&0B1"));
  // The first backward of the middle stage, 2B4, follows 1F2 unpaired.
  EXPECT_THAT(pairs_of(schedule.workers[1]), ::testing::ElementsAre("2F6&1B0", "1F3&2B5", "2F7&1B1"));
}

TEST(DualpipeTest, EveryWorkerHoldsDepthAndOneActivations) {
  for (std::int64_t depth = 2; depth <= 12; depth += 2) {
    for (const std::int64_t n : {2 * depth, 2 * depth + 2, 4 * depth})
      testing::expect_in_flight("dualpipe", {depth, n}, depth + 1);
  }
}

TEST(DualpipeTest, TheFirstHalfOfTheMicroBatchesGoesDown) {
  const Schedule schedule = dualpipe({2, 6});
  const auto ids = micro_batches_of_replicas(schedule);
  EXPECT_THAT(ids[0], ::testing::ElementsAre(MicroBatchId(0), MicroBatchId(1), MicroBatchId(2)));
  EXPECT_THAT(ids[1], ::testing::ElementsAre(MicroBatchId(3), MicroBatchId(4), MicroBatchId(5)));
  EXPECT_THAT(schedule.placement.worker_of, ::testing::ElementsAre(::testing::ElementsAre(WorkerId(0), WorkerId(1)),
                                                                   ::testing::ElementsAre(WorkerId(1), WorkerId(0))));
}

TEST(DualpipeTest, WorkersMirrorEachOther) {
  const Schedule schedule = dualpipe({6, 14});
  for (std::size_t w = 0; w < 3; ++w) {
    auto mirrored = schedule.workers[5 - w];
    for (Op& op : mirrored) {
      op.replica = ReplicaId(1 - op.replica.value());
      op.micro_batch = MicroBatchId((op.micro_batch.value() + 7) % 14);
    }
    EXPECT_EQ(schedule.workers[w], mirrored);
  }
}

TEST(DualpipevTest, BubbleIsTheClosedForm) {
  for (std::int64_t depth = 1; depth <= 8; ++depth) {
    for (std::int64_t n = 2 * depth; n <= 3 * depth + 3; ++n) {
      for (const auto& [f, i, w] : kDualpipeCosts) {
        const Timeline timeline = testing::timed(dualpipev({depth, n}), SplitCosts{f, i, w});
        EXPECT_DOUBLE_EQ(timeline.makespan,
                         static_cast<double>(n) * (f + i + w) + static_cast<double>(depth - 1) * (f + i - w) / 2)
            << testing::describe("dualpipev", {depth, n}) << " F=" << f << " I=" << i << " W=" << w;
      }
    }
  }
}

TEST(DualpipevTest, EveryWorkerHoldsTwiceDepthAndOneStages) {
  for (std::int64_t depth = 1; depth <= 8; ++depth)
    testing::expect_in_flight("dualpipev", {depth, 3 * depth}, 2 * depth + 1, 2);
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

}  // namespace
}  // namespace chimera
