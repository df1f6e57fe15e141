#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "support/generators.h"
#include "support/schedules.h"

namespace chimera {
namespace {

TEST(PipedreamTwoBwTest, OneStepHasTheOrderOf1F1BAndTheFirstWeights) {
  for (const PipelineShape& shape : testing::small_shapes("pipedream-2bw")) {
    const Schedule schedule = pipedream_two_bw(shape);
    EXPECT_EQ(schedule.workers, one_f_one_b(shape).workers);  // all versions are 0
    EXPECT_EQ(schedule.updates, (AsynchronousUpdates{.micro_batches = shape.micro_batches, .versions = 2, .delay = 1}));
  }
}

TEST(PipedreamTwoBwTest, RejectsFewerMicroBatchesThanStages) {
  EXPECT_NO_THROW((void)pipedream_two_bw({4, 4}));
  try {
    (void)pipedream_two_bw({4, 3});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("--micro-batches must be at least --stages = 4, not 3"));
  }
  EXPECT_THROW((void)pipedream_two_bw({0, 4}), ConfigError);
}

}  // namespace
}  // namespace chimera
