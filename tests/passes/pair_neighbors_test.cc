#include "passes/pair_neighbors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "check/check_schedule.h"
#include "schedule/schedule_csv.h"
#include "support/schedules.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;

std::vector<std::size_t> num_pairs(const Schedule& schedule) {
  std::vector<std::size_t> numbers;
  for (const auto& ops : schedule.workers)
    numbers.push_back(static_cast<std::size_t>(std::ranges::count_if(ops, &Op::paired)));
  return numbers;
}

TEST(PairNeighborsTest, TheLastWorkerOf1F1BHasNoPairs) {
  const Schedule paired = pair_neighbors(find_generator("1f1b").generate({.stages = 3, .micro_batches = 6}));
  EXPECT_THAT(num_pairs(paired), ElementsAre(4, 5, 0));
}

TEST(PairNeighborsTest, EveryScheduleStaysTheSameAndRunsItsPairsTogether) {
  testing::for_every_schedule(5, [](const Schedule& schedule) {
    const Schedule paired = pair_neighbors(schedule);
    EXPECT_EQ(without_pairs(paired), without_pairs(schedule));
    EXPECT_TRUE(check(paired).empty());
    EXPECT_EQ(has_pairs(paired) && schedule.updates, false);
  });
}

TEST(PairNeighborsTest, SplitsOnlyPairsThatCannotRun) {
  const auto read = [](const std::string& cells) { return schedule_from_csv(cells, "text").schedule; };
  const Schedule needs_itself = read("0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1F1,1B0,1F2,1B1,1B2\n");
  EXPECT_EQ(to_csv(pair_neighbors(needs_itself)),
            "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,(1F1;1B0)OVERLAP_F_B,(1F2;1B1)OVERLAP_F_B,1B2\n");
}

}  // namespace
}  // namespace chimera
