#include "generate/one_f_one_b.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "support/schedules.h"

namespace chimera {
namespace {

TEST(OneFOneBTest, MakespanAndActivationsAreTheClosedForms) {
  for (const PipelineShape& shape : testing::small_shapes("1f1b")) {
    const Timeline timeline = testing::timed(one_f_one_b(shape), 1, 2);
    EXPECT_EQ(timeline.makespan, static_cast<double>(shape.micro_batches + shape.stages - 1) * 3);
    for (std::int64_t s = 0; s < shape.stages; ++s) {
      EXPECT_EQ(timeline.workers[static_cast<std::size_t>(s)].peak_in_flight,
                std::min(shape.stages - s, shape.micro_batches));
    }
  }
}

TEST(OneFOneBTest, RejectsInvalidShapes) {
  EXPECT_THROW((void)one_f_one_b({4, 0}), ConfigError);
  EXPECT_THROW((void)one_f_one_b({-4, 4}), ConfigError);
}

}  // namespace
}  // namespace chimera
