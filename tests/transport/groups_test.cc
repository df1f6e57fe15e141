
#include "transport/groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace chimera {
namespace {

const RankGroups kGroups{{RankId(0), RankId(3)}, {RankId(1), RankId(2)}};

TEST(GroupsTest, FindsTheMembersPlace) {
  EXPECT_EQ(index_in_group(kGroups, ParameterGroupId(0), RankId(3)), 1U);
  EXPECT_EQ(index_in_group(kGroups, ParameterGroupId(1), RankId(1)), 0U);
}

TEST(GroupsTest, RejectsARankWithoutAReplica) {
  try {
    static_cast<void>(index_in_group(kGroups, ParameterGroupId(1), RankId(3)));
    FAIL() << "rank 3 holds no copy of stage 1";
  } catch (const TransportError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("rank 3: all-reduce of stage 1"));
  }
  EXPECT_THROW(static_cast<void>(index_in_group(kGroups, ParameterGroupId(2), RankId(0))), TransportError);
}

}  // namespace
}  // namespace chimera
