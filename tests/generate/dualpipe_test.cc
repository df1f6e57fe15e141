#include "generate/dualpipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "core/error.h"
#include "support/schedules.h"

namespace chimera {
namespace {

using testing::SplitCosts;

/// (F, I, W) with W <= I <= F <= I + W.
constexpr std::array kCosts = {SplitCosts{1, 1, 1}, SplitCosts{1, 0.75, 0.5}, SplitCosts{2, 1.5, 1},
                               SplitCosts{2, 1, 1}, SplitCosts{1, 1, 0}};

TEST(DualpipeTest, BubbleIsTheClosedForm) {
  for (std::int64_t depth = 2; depth <= 12; depth += 2) {
    for (std::int64_t n = 2 * depth; n <= 3 * depth + 2; n += 2) {
      for (const auto& [f, i, w] : kCosts) {
        const Timeline timeline = testing::timed(dualpipe({depth, n}), SplitCosts{f, i, w});
        EXPECT_DOUBLE_EQ(timeline.makespan,
                         static_cast<double>(n) * (f + i + w) + static_cast<double>(depth / 2 - 1) * (f + i - w))
            << testing::describe("dualpipe", {depth, n}) << " F=" << f << " I=" << i << " W=" << w;
      }
    }
  }
}

TEST(DualpipeTest, EveryWorkerHoldsDepthAndOneActivations) {
  for (std::int64_t depth = 2; depth <= 12; depth += 2) {
    for (const std::int64_t n : {2 * depth, 2 * depth + 2, 4 * depth}) {
      for (const auto& worker : testing::timed(dualpipe({depth, n}), 1, 2).workers) {
        EXPECT_EQ(worker.peak_in_flight, depth + 1) << testing::describe("dualpipe", {depth, n});
      }
    }
  }
}

TEST(DualpipeTest, MakespansOfTheComparisonTable) {
  EXPECT_DOUBLE_EQ(testing::timed(dualpipe({8, 16}), SplitCosts{1, 1, 1}).makespan, 51);
  EXPECT_NEAR(testing::timed(dualpipe({8, 16}), SplitCosts{1, 1.3, 0.7}, 0.1).makespan, 54.7, 1e-9);
  EXPECT_NEAR(testing::timed(dualpipe({8, 32}), SplitCosts{1, 1.3, 0.7}, 0.1).makespan, 102.7, 1e-9);
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

void expect_rejected(const PipelineShape& shape, const char* what) {
  try {
    (void)dualpipe(shape);
    ADD_FAILURE() << "accepted " << testing::describe("dualpipe", shape);
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr(what));
  }
}

TEST(DualpipeTest, RejectsWhatDoesNotFitAndSaysWhatWould) {
  expect_rejected({8, 8}, "--micro-batches must be at least 2D = 16 and even, not 8");
  expect_rejected({8, 17}, "--micro-batches must be at least 2D = 16 and even, not 17");
  expect_rejected({5, 16}, "--stages must be even, not 5");
  expect_rejected({0, 16}, "--stages must be at least 1");
  expect_rejected({8, 1'000'000'000'000}, "more than 100000000 ops");
}

}  // namespace
}  // namespace chimera
