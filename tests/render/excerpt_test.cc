#include "render/excerpt.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace chimera
