#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/generators.h"
#include "support/schedules.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;

TEST(GemsTest, MicroBatchesGoDownAndUpInTurn) {
  const Schedule schedule = gems({3, 3});
  EXPECT_THAT(micro_batches_of_replicas(schedule),
              ElementsAre(ElementsAre(MicroBatchId(0), MicroBatchId(2)), ElementsAre(MicroBatchId(1))));
  EXPECT_THAT(schedule.placement.worker_of, ElementsAre(ElementsAre(WorkerId(0), WorkerId(1), WorkerId(2)),
                                                        ElementsAre(WorkerId(2), WorkerId(1), WorkerId(0))));
}

TEST(GemsTest, MakespanAndActivationsAreTheClosedForms) {
  for (const PipelineShape& shape : testing::small_shapes("gems")) {
    const auto [d, n] = std::pair(static_cast<double>(shape.stages), static_cast<double>(shape.micro_batches));
    for (const double b : {1.0, 2.0, 3.5}) {
      const Timeline timeline = testing::timed(gems(shape), 1, b);
      EXPECT_EQ(timeline.makespan, n * (d * b + 1) + d - 1) << testing::describe("gems", shape);
      for (const auto& worker : timeline.workers) EXPECT_EQ(worker.peak_in_flight, 1);
    }
  }
}

TEST(GemsTest, BubbleRatioTendsToThePublishedRatio) {
  const double ratio = testing::timed(gems({8, 2000}), 1, 2).bubble_ratio;
  EXPECT_NEAR(ratio, (8 - 1) / (8 + 0.5), 1e-3);
}

}  // namespace
}  // namespace chimera
