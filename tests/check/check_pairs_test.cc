// Illegal pairs, and cycles of waits that exist only if the ops of a pair run together.

#include "check/check_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "check/check_program.h"
#include "passes/lower.h"
#include "schedule/dependencies.h"
#include "schedule/schedule_csv.h"
#include "support/schedules.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;

Schedule read(const std::string& cells) { return schedule_from_csv(cells, "text").schedule; }

/// The only violation of a schedule.
Violation only_violation(const Schedule& schedule) {
  const auto violations = check(schedule);
  EXPECT_EQ(violations.size(), 1U);
  return violations.empty() ? Violation{} : violations.front();
}

void expect_bad_pair(const Schedule& schedule, const std::string& message) {
  const Violation violation = only_violation(schedule);
  EXPECT_EQ(violation.kind, ViolationKind::BadPair);
  EXPECT_THAT(violation.message, HasSubstr(message));
}

TEST(CheckPairsTest, AForwardAndABackwardOfDifferentMicroBatchesAreAPair) {
  EXPECT_TRUE(check(read("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n")).empty());
  EXPECT_TRUE(check(read("0F0,(0F1;0I0)OVERLAP_F_B,0W0,0B1\n")).empty());
}

TEST(CheckPairsTest, RejectsAnyOtherPair) {
  expect_bad_pair(read("0F0,0F1,(0B0;0B1)OVERLAP_F_B\n"), "worker 0, op 2 (0B0): paired; a pair begins with a forward");
  expect_bad_pair(read("0F0,0I0,(0F1;0W0)OVERLAP_F_B,0B1\n"), "paired with 0W0; the second op of a pair is B or I");
  expect_bad_pair(read("(0F0;0F1)OVERLAP_F_B,0B0,0B1\n"), "paired with 0F1");
  expect_bad_pair(read("(0F0;0B0)OVERLAP_F_B,0F1,0B1\n"),
                  "paired with 0B0, which needs it: it is of the same micro-batch");
  Schedule last = read("0F0,0B0\n");
  last.workers[0].back().paired = true;
  expect_bad_pair(last, "a pair begins with a forward");
  Schedule asynchronous = find_generator("pipedream").generate({2, 4});
  asynchronous.workers[0][2].paired = true;
  expect_bad_pair(asynchronous, "an asynchronous schedule has no pairs");
}

TEST(CheckPairsTest, FindsAPairThatNeedsItselfThroughAnotherWorker) {
  // Run in order, this is 1F1B. Run together, 0B0 needs 1B0, which follows 1F1, which needs 0F1.
  const Schedule schedule = read("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,1F1,1B0,1B1\n");
  ASSERT_TRUE(check(without_pairs(schedule)).empty());
  const Violation violation = only_violation(schedule);
  EXPECT_EQ(violation.kind, ViolationKind::BadPair);
  EXPECT_EQ(
      violation.message,
      "deadlock if pairs run together, a cycle of 2 waits: worker 0 cannot run 0F1&0B0 (its op 2) before 1B0 (op 2 "
      "of worker 1); worker 1 cannot run 1F1 (its op 1) before 0F1&0B0 (op 1 of worker 0)");
  EXPECT_EQ(violation.places, (std::vector<Place>{{0, 2}, {1, 2}, {1, 1}, {0, 1}}));
}

TEST(CheckPairsTest, FindsTwoPairsThatNeedEachOther) {
  const Schedule schedule = read("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,(1F1;1B0)OVERLAP_F_B,1B1\n");
  ASSERT_TRUE(check(without_pairs(schedule)).empty());
  expect_bad_pair(schedule,
                  "worker 0 cannot run 0F1&0B0 (its op 2) before 1F1&1B0 (op 2 of worker 1); "
                  "worker 1 cannot run 1F1&1B0 (its op 1) before 0F1&0B0 (op 1 of worker 0)");
}

TEST(CheckPairsTest, EveryGeneratedPairRunsTogetherUnderBothDisciplines) {
  testing::for_every_schedule(6, [](const Schedule& schedule) {
    if (!has_pairs(schedule)) return;
    EXPECT_TRUE(check(schedule).empty());
    for (const ChannelDiscipline discipline : {ChannelDiscipline::PerDirection, ChannelDiscipline::SerialPair}) {
      const Program program = lower(schedule, {.discipline = discipline, .pairs = Pairs::Together});
      EXPECT_TRUE(check(program, discipline).empty());
    }
  });
}

TEST(CheckPairsTest, AProgramsPairHasBothInputsBeforeIt) {
  const Schedule schedule = read("0F0,0F1,(0F2;0B0)OVERLAP_F_B,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n");
  const Program right = lower(schedule, {.pairs = Pairs::Together});
  ASSERT_TRUE(check(right, ChannelDiscipline::PerDirection).empty());
  const auto first = std::ranges::find_if(right.workers[0], [](const Instruction& i) { return i.op.paired; });
  const auto at = first - right.workers[0].begin();
  ASSERT_EQ(to_text(*first), "0F2");
  ASSERT_EQ(to_text(right.workers[0][static_cast<std::size_t>(at) + 1]), "0B0");

  Program late = right;  // the wait for the gradient is between the two ops
  auto& list = late.workers[0];
  std::rotate(list.begin() + at - 2, list.begin() + at - 1, list.begin() + at + 1);
  EXPECT_FALSE(check(late, ChannelDiscipline::PerDirection).empty());

  Program alone = right;
  alone.workers[0][static_cast<std::size_t>(at) + 1].op.paired = true;
  EXPECT_FALSE(check(alone, ChannelDiscipline::PerDirection).empty());
}

}  // namespace
}  // namespace chimera
