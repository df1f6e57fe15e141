#include "render/text.h"

#include <gtest/gtest.h>

#include "support/schedules.h"

namespace chimera {
namespace {

TEST(TextTest, OpsOfTwoUnitsGoOn) {
  const Schedule schedule = find_generator("1f1b").generate({2, 2});
  EXPECT_EQ(to_text(schedule, testing::timed(schedule, 1, 2)),
            "worker 0 | 0F0 0F1  .   .  0B0  \"   .  0B1  \"         . a bubble, found by simulate()\n"
            "worker 1 |  .  1F0 1B0  \"  1F1 1B1  \"   .   .\n");
}

TEST(TextTest, FractionsOfAUnitLeaveTheOrderAlone) {
  const Schedule schedule = find_generator("1f1b").generate({2, 2});
  EXPECT_EQ(to_text(schedule, testing::timed(schedule, 1, 1.5)),
            "worker 0 | 0F0 0F1 0B0 0B1\n"
            "worker 1 | 1F0 1B0 1F1 1B1\n");
}

TEST(TextTest, SaysWhichMicroBatchesGoDownAndUp) {
  const auto picture = [](const PipelineShape& shape) {
    const Schedule schedule = find_generator("chimera").generate(shape);
    return to_text(schedule, testing::timed(schedule, 1, 1));
  };
  EXPECT_NE(picture({2, 2}).find("down: micro-batches 0\n"), std::string::npos) << picture({2, 2});
  EXPECT_NE(picture({2, 2}).find("up:   micro-batches 1\n"), std::string::npos) << picture({2, 2});
  EXPECT_NE(picture({4, 1}).find("up:   no micro-batch"), std::string::npos) << picture({4, 1});
  EXPECT_NE(picture({8, 64}).find("(32 in all)"), std::string::npos) << picture({8, 64});
}

}  // namespace
}  // namespace chimera
