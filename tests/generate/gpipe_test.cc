#include <gtest/gtest.h>

#include "core/error.h"
#include "support/generators.h"
#include "support/schedules.h"

namespace chimera {
namespace {

TEST(GpipeTest, MakespanAndActivationsAreTheClosedForms) {
  for (const PipelineShape& shape : testing::small_shapes("gpipe")) {
    const Timeline timeline = testing::timed(gpipe(shape), 1, 2);
    EXPECT_DOUBLE_EQ(timeline.makespan, 3 * testing::slots_of_flow(shape));
    for (const auto& worker : timeline.workers) {
      EXPECT_EQ(worker.peak_in_flight, shape.micro_batches * shape.slices);
      EXPECT_EQ(worker.peak_stage_units, shape.micro_batches);
    }
  }
}

TEST(GpipeTest, SlicesGoForwardInOrderAndBackwardInReverse) {
  const Schedule schedule = gpipe({.stages = 1, .micro_batches = 2, .slices = 2});
  EXPECT_EQ(testing::ops(schedule)[0], "0F0.0 0F0.1 0F1.0 0F1.1 0B0.1 0B0.0 0B1.1 0B1.0");
}

TEST(GpipeTest, RejectsInvalidShapes) {
  EXPECT_THROW((void)gpipe({0, 4}), ConfigError);
  EXPECT_THROW((void)gpipe({4, -1}), ConfigError);
  EXPECT_THROW((void)gpipe({1'000'000'000'000, 1'000'000'000'000}), ConfigError);
}

}  // namespace
}  // namespace chimera
