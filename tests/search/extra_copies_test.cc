#include "search/extra_copies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "check/check_schedule.h"
#include "generate/registry.h"

namespace chimera {
namespace {

using ::testing::IsEmpty;

DetourTask task_without(std::int64_t d, std::int64_t n, std::int64_t groups, std::int64_t lost) {
  const Generator& generator = find_generator("chimera-zb");
  return {.healthy = generator.generate(default_shape(generator, d, n)), .groups = groups, .slow = {{WorkerId(lost)}}};
}

// The goal of the specification, for the shapes of its table and any lost worker of a group.
TEST(ExtraCopiesTest, TwoCopiesBalanceTheWork) {
  struct Row {
    std::int64_t d, n, groups;
    double healthy;
  };
  double worst = 0;
  for (const Row& row : {Row{4, 4, 1, 13}, Row{8, 8, 1, 27}, Row{8, 16, 1, 51}, Row{4, 8, 2, 25}, Row{8, 16, 2, 51},
                         Row{8, 16, 4, 51}}) {
    for (std::int64_t lost = 0; lost < row.d; ++lost) {
      const DetourTask task = task_without(row.d, row.n, row.groups, lost);
      const BalancedDetours found = balance_detours(task, 2);
      EXPECT_THAT(check(found.detours.schedule), IsEmpty());
      EXPECT_THAT(lost_workers(found.detours.schedule), ::testing::ElementsAre(static_cast<std::size_t>(lost)));
      const auto workers = static_cast<double>(row.d * row.groups);
      const double ratio = found.detours.makespan / (row.healthy * workers / (workers - 1));
      EXPECT_LE(ratio, 1.15) << row.d << " " << row.n << " " << row.groups << " without " << lost;
      EXPECT_LE(found.detours.makespan, make_detours(task).makespan);
      worst = std::max(worst, ratio);
    }
  }
  std::cout << "worst ratio to DW/(DW-1) of the healthy makespan: " << worst << '\n';
}

TEST(ExtraCopiesTest, CopiesFitIntoMemory) {
  const DetourTask task = task_without(8, 8, 1, 3);
  EXPECT_THAT(balance_detours(task, 2, [](const auto&) { return false; }).copies, IsEmpty());
  const BalancedDetours found = balance_detours(task, 2, [](const std::vector<ExtraCopy>& copies) {
    return copies.size() == 1 && copies[0].worker == WorkerId(1);
  });
  ASSERT_EQ(found.copies.size(), 1U);
  EXPECT_EQ(found.copies[0].worker, WorkerId(1));
  EXPECT_LT(found.detours.makespan, make_detours(task).makespan);
}

// One copy is as fast as two, but leaves a stage on one worker.
TEST(ExtraCopiesTest, BothStagesOfALostWorkerGetACopy) {
  DetourTask task = task_without(4, 8, 1, 2);
  EXPECT_EQ(balance_detours(task, 2).copies.size(), 2U);
  task.extra_copies = balance_detours(task, 1).copies;
  ASSERT_EQ(task.extra_copies.size(), 1U);
  const BalancedDetours found = balance_detours(task, 1);
  ASSERT_EQ(found.copies.size(), 1U);
  EXPECT_NE(found.copies[0].stage, task.extra_copies[0].stage);
  EXPECT_LE(found.detours.makespan, make_detours(task).makespan);
}

TEST(ExtraCopiesTest, AGivenCopyRunsOpsOfItsStage) {
  DetourTask task = task_without(4, 4, 1, 1);
  task.extra_copies = {{StageId(1), WorkerId(0)}};
  const Detours detours = make_detours(task);
  EXPECT_THAT(check(detours.schedule), IsEmpty());
  EXPECT_LT(detours.makespan, make_detours(task_without(4, 4, 1, 1)).makespan);
  const auto& ops = detours.schedule.workers[0];
  EXPECT_TRUE(std::ranges::any_of(ops, [](const Op& op) { return op.stage == StageId(1); }));
}

}  // namespace
}  // namespace chimera
