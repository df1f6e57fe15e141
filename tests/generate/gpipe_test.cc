#include "generate/gpipe.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "support/schedules.h"

namespace chimera {
namespace {

TEST(GpipeTest, MakespanAndActivationsAreTheClosedForms) {
  for (const PipelineShape& shape : testing::small_shapes("gpipe")) {
    const Timeline timeline = testing::timed(gpipe(shape), 1, 2);
    EXPECT_EQ(timeline.makespan, static_cast<double>(shape.micro_batches + shape.stages - 1) * 3);
    for (const auto& worker : timeline.workers) EXPECT_EQ(worker.peak_in_flight, shape.micro_batches);
  }
}

TEST(GpipeTest, RejectsInvalidShapes) {
  EXPECT_THROW((void)gpipe({0, 4}), ConfigError);
  EXPECT_THROW((void)gpipe({4, -1}), ConfigError);
  EXPECT_THROW((void)gpipe({1'000'000'000'000, 1'000'000'000'000}), ConfigError);
}

}  // namespace
}  // namespace chimera
