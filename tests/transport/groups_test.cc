// Who sums what.

#include "transport/groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace chimera {
namespace {

const StageGroups kGroups{{WorkerId(0), WorkerId(3)}, {WorkerId(1), WorkerId(2)}};

TEST(GroupsTest, FindsTheMembersPlace) {
  EXPECT_EQ(place_in_group(kGroups, StageId(0), WorkerId(3)), 1U);
  EXPECT_EQ(place_in_group(kGroups, StageId(1), WorkerId(1)), 0U);
}

TEST(GroupsTest, RejectsWhoHoldsNoCopy) {
  try {
    static_cast<void>(place_in_group(kGroups, StageId(1), WorkerId(3)));
    FAIL() << "worker 3 holds no copy of stage 1";
  } catch (const TransportError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("worker 3: all-reduce of stage 1"));
  }
  EXPECT_THROW(static_cast<void>(place_in_group(kGroups, StageId(2), WorkerId(0))), TransportError);
}

}  // namespace
}  // namespace chimera
