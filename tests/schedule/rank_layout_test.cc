#include "schedule/rank_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generate/registry.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;

std::vector<std::int64_t> numbers(const std::vector<RankId>& ids) {
  std::vector<std::int64_t> result;
  for (const RankId id : ids) result.push_back(id.value());
  return result;
}

TEST(RankLayoutTest, NearPutsTheReplicasOfAWorkerOnAdjacentRanks) {
  const RankLayout layout{.workers = 4, .data_parallel = 2, .replicas = ReplicaLayout::Near};
  EXPECT_EQ(layout.rank({GroupId(0), WorkerId(1)}), RankId(2));
  EXPECT_EQ(layout.rank({GroupId(1), WorkerId(1)}), RankId(3));
}

TEST(RankLayoutTest, FarPutsTheWorkersOfAPipelineOnAdjacentRanks) {
  const RankLayout layout{.workers = 4, .data_parallel = 2, .replicas = ReplicaLayout::Far};
  EXPECT_EQ(layout.rank({GroupId(0), WorkerId(1)}), RankId(1));
  EXPECT_EQ(layout.rank({GroupId(1), WorkerId(1)}), RankId(5));
}

TEST(RankLayoutTest, EveryRankIsOneWorkerOfOneGroup) {
  for (const ReplicaLayout replicas : {ReplicaLayout::Near, ReplicaLayout::Far}) {
    const RankLayout layout{.workers = 4, .data_parallel = 3, .replicas = replicas};
    for (std::int64_t r = 0; r < 12; ++r) EXPECT_EQ(layout.rank(layout.place(RankId(r))), RankId(r));
    EXPECT_EQ(layout.place(RankId(0)), (GroupWorker{GroupId(0), WorkerId(0)})) << "who speaks";
  }
}

TEST(RankLayoutTest, AStageIsSummedOverItsReplicasInAllGroups) {
  // Chimera's stage 1 is on worker 1 (down) and 2 (up): 2fW = 4 members.
  const auto stages = stage_groups(find_generator("chimera").generate({4, 4}).placement);
  EXPECT_THAT(numbers(RankLayout{4, 2, ReplicaLayout::Near}.ranks_of(stages)[1]), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(numbers(RankLayout{4, 2, ReplicaLayout::Far}.ranks_of(stages)[1]), ElementsAre(1, 2, 5, 6));
}

}  // namespace
}  // namespace chimera
