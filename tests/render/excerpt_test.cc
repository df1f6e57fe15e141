#include "render/text.h"

#include <gtest/gtest.h>

#include "passes/lower.h"
#include "support/schedules.h"

namespace chimera {
namespace {

TEST(ExcerptTest, MarksThePlaceInItsRow) {
  const Schedule schedule = find_generator("gpipe").generate({2, 8});
  EXPECT_EQ(excerpt(schedule, {{0, 1}, {1, 9}}),
            "  worker 0 | 0F0 [0F1] 0F2 0F3 0F4 0F5 ...\n"
            "  worker 1 | ... 1F5 1F6 1F7 1B0 [1B1] 1B2 1B3 1B4 1B5 ...\n");
  EXPECT_EQ(excerpt(schedule, {}), "");
}

TEST(ExcerptTest, ARowHoldsAllPlacesOfItsWorker) {
  const Schedule schedule = find_generator("gpipe").generate({2, 8});
  EXPECT_EQ(excerpt(schedule, {{1, 0}, {0, 15}, {1, 2}, {1, 14}}),
            "  worker 0 | ... 0B3 0B4 0B5 0B6 [0B7]\n"
            "  worker 1 | [1F0] 1F1 [1F2] 1F3 1F4 1F5 1F6 ... 1B2 1B3 1B4 1B5 [1B6] 1B7\n");
}

TEST(ExcerptTest, ShowsInstructionsOfAProgram) {
  const Program program = lower(find_generator("gpipe").generate({2, 1}));
  EXPECT_EQ(excerpt(program, {{1, 2}}),
            "  worker 1 | post receive of 0F0 from worker 0; wait for 0F0 from worker 0; [1F0]; 1B0; "
            "send 1B0 to worker 0 ...\n");
}

}  // namespace
}  // namespace chimera
