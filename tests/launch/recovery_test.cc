#include "launch/local/recovery.h"

#include <gtest/gtest.h>

#include <vector>

namespace chimera {
namespace {

const RankGroups kFourRanksOfChimera = {{RankId(0), RankId(3)}, {RankId(1), RankId(2)}};

void all_say(Recovery& recovery, RecoveryNote::Kind kind, std::int64_t step = 0) {
  for (int rank = 0; rank < 4; ++rank)
    recovery.note({.rank = rank, .kind = kind, .generation = recovery.generation(), .step = step});
}

void recover(Recovery& recovery, std::int64_t step) {
  all_say(recovery, RecoveryNote::Kind::Left);
  ASSERT_TRUE(recovery.all_left());
  recovery.join();
  all_say(recovery, RecoveryNote::Kind::Resumed, step);
  ASSERT_TRUE(recovery.all_resumed());
  recovery.finish();
}

TEST(RecoveryTest, RecoveryWaitsForAllRanksToLeaveAndToResume) {
  Recovery recovery(4, kFourRanksOfChimera, 5);
  const Recovery::Answer answer = recovery.handle_loss({2}, 7);
  EXPECT_EQ(answer.why_not, "");
  EXPECT_TRUE(answer.begins_generation);
  EXPECT_EQ(recovery.generation(), 1);
  EXPECT_FALSE(recovery.has_weights(2));
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_FALSE(recovery.all_left());
    recovery.note({.rank = rank, .kind = RecoveryNote::Kind::Left, .generation = 1});
  }
  EXPECT_TRUE(recovery.all_left());
  recovery.join();
  EXPECT_FALSE(recovery.all_left());
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_FALSE(recovery.all_resumed());
    recovery.note({.rank = rank, .kind = RecoveryNote::Kind::Resumed, .generation = 1, .step = 6});
  }
  EXPECT_TRUE(recovery.all_resumed());
  recovery.finish();
  EXPECT_EQ(recovery.state(), Recovery::State::Running);
  EXPECT_EQ(recovery.resumed_after(), 6);
  EXPECT_TRUE(recovery.has_weights(2));
}

// Two ranks share each of two stages, and two groups of them have copies.
TEST(RecoveryTest, AllRanksThatShareLayersMayBeLost) {
  const RankGroups copies = {
      {RankId(0), RankId(4)}, {RankId(1), RankId(5)}, {RankId(2), RankId(6)}, {RankId(3), RankId(7)}};
  Recovery recovery(8, copies, 5, Recovery::Replacement::Required, {}, 2);
  EXPECT_EQ(recovery.handle_loss({2, 3}, 7).why_not, "");
  EXPECT_EQ(recovery.handle_loss({7}, 7).why_not, "not recovered: no rank is left that holds stage 1");
}

TEST(RecoveryTest, MessagesOfEarlierEpochsAreDropped) {
  Recovery recovery(4, kFourRanksOfChimera, 5);
  EXPECT_EQ(recovery.handle_loss({2}, 7).why_not, "");
  all_say(recovery, RecoveryNote::Kind::Left);
  recovery.join();
  EXPECT_TRUE(recovery.handle_loss({2}, 8).begins_generation) << "a rank that was told to join may not come back";
  for (int rank = 0; rank < 4; ++rank) {
    recovery.note({.rank = rank, .kind = RecoveryNote::Kind::Left, .generation = 1});
    recovery.note({.rank = rank, .kind = RecoveryNote::Kind::Resumed, .generation = 2});
  }
  recovery.note({.rank = 17, .kind = RecoveryNote::Kind::Left, .generation = 2});
  EXPECT_FALSE(recovery.all_left());
  all_say(recovery, RecoveryNote::Kind::Left);
  EXPECT_TRUE(recovery.all_left());
}

TEST(RecoveryTest, RankLostDuringARecoveryJoinsTheSameRecovery) {
  Recovery recovery(4, kFourRanksOfChimera, 1);
  EXPECT_EQ(recovery.handle_loss({2}, 7).why_not, "");
  recovery.note({.rank = 3, .kind = RecoveryNote::Kind::Left, .generation = 1});
  const Recovery::Answer answer = recovery.handle_loss({3}, 7);
  EXPECT_EQ(answer.why_not, "");
  EXPECT_FALSE(answer.begins_generation);
  EXPECT_EQ(recovery.generation(), 1);
  for (const int rank : {0, 1, 2}) recovery.note({.rank = rank, .kind = RecoveryNote::Kind::Left, .generation = 1});
  EXPECT_FALSE(recovery.all_left()) << "the new rank 3 has not said so";
  recovery.note({.rank = 3, .kind = RecoveryNote::Kind::Left, .generation = 1});
  EXPECT_TRUE(recovery.all_left());
}

TEST(RecoveryTest, StageWithoutAReplicaCannotBeRestored) {
  Recovery recovery(4, kFourRanksOfChimera, 5);
  EXPECT_EQ(recovery.handle_loss({1, 2}, 7).why_not, "not recovered: no rank is left that holds stage 1");
  Recovery later(4, kFourRanksOfChimera, 5);
  EXPECT_EQ(later.handle_loss({1}, 7).why_not, "");
  EXPECT_EQ(later.handle_loss({2}, 7).why_not, "not recovered: no rank is left that holds stage 1")
      << "1 has no weights yet";
}

TEST(RecoveryTest, RepeatedlyFailingStepEndsTheJob) {
  Recovery recovery(4, kFourRanksOfChimera, 50);
  for (const int rank : {1, 2}) {
    EXPECT_EQ(recovery.handle_loss({rank}, 7).why_not, "");
    recover(recovery, 6);
  }
  EXPECT_EQ(recovery.handle_loss({1}, 7).why_not, "not recovered: it has failed in step 7 3 times in a row");
}

TEST(RecoveryTest, RepeatedDeathsOfANewRankEndTheJob) {
  Recovery recovery(4, kFourRanksOfChimera, 50);
  EXPECT_EQ(recovery.handle_loss({1}, 7).why_not, "");
  EXPECT_EQ(recovery.handle_loss({1}, 0).why_not, "");
  EXPECT_EQ(recovery.handle_loss({1}, 0).why_not, "");
  EXPECT_EQ(recovery.handle_loss({1}, 0).why_not,
            "not recovered: it has failed before its first step 3 times in a row");
}

TEST(RecoveryTest, WithoutReplacementsALostRankIsAbsentAtOnce) {
  Recovery recovery(4, kFourRanksOfChimera, 5, Recovery::Replacement::None);
  EXPECT_EQ(recovery.handle_loss({2}, 7).why_not, "");
  EXPECT_TRUE(recovery.is_absent(2));
  for (const int rank : {0, 1, 3}) {
    EXPECT_FALSE(recovery.all_left());
    recovery.note({.rank = rank, .kind = RecoveryNote::Kind::Left, .generation = 1});
  }
  EXPECT_TRUE(recovery.all_left());
  recovery.join();
  for (const int rank : {0, 1, 3})
    recovery.note({.rank = rank, .kind = RecoveryNote::Kind::Resumed, .generation = 1, .step = 6});
  EXPECT_TRUE(recovery.all_resumed());
  recovery.finish();
  EXPECT_FALSE(recovery.has_weights(2));
  EXPECT_EQ(recovery.handle_loss({1}, 9).why_not, "not recovered: no rank is left that holds stage 1");
}

TEST(RecoveryTest, ExtraCopiesCountAsHolders) {
  Recovery recovery(4, kFourRanksOfChimera, 5, Recovery::Replacement::Preferred);
  const auto note = [&](int rank, RecoveryNote::Kind kind, std::vector<std::int64_t> groups = {}) {
    recovery.note({.rank = rank, .kind = kind, .generation = recovery.generation(), .step = 6, .groups = groups});
  };
  const auto continue_without_missing = [&](const std::vector<int>& ranks) {
    for (const int rank : ranks) note(rank, RecoveryNote::Kind::Left);
    recovery.leave_out_missing();
    recovery.join();
    for (const int rank : ranks) note(rank, RecoveryNote::Kind::Resumed);
    recovery.finish();
  };
  EXPECT_EQ(recovery.handle_loss({2}, 7).why_not, "");
  continue_without_missing({0, 1, 3});
  note(3, RecoveryNote::Kind::Resumed, {1});
  EXPECT_EQ(recovery.extra_copies(), (std::vector<GroupHolder>{{RankId(3), ParameterGroupId(1)}}));
  EXPECT_EQ(recovery.handle_loss({1}, 9).why_not, "") << "rank 3 holds stage 1 too";
  for (const int rank : {0, 3}) note(rank, RecoveryNote::Kind::Left);
  recovery.leave_out_missing();
  recovery.join();
  note(0, RecoveryNote::Kind::Resumed);
  note(3, RecoveryNote::Kind::Resumed, {1});
  recovery.finish();
  Recovery other = recovery;
  EXPECT_EQ(other.handle_loss({3}, 11).why_not, "not recovered: no rank is left that holds stage 1");
  EXPECT_TRUE(other.extra_copies().empty());
  // The lost ranks return, and get stage 1 from its extra copy.
  note(1, RecoveryNote::Kind::Left);
  note(2, RecoveryNote::Kind::Left);
  ASSERT_TRUE(recovery.is_any_ready());
  EXPECT_EQ(recovery.welcome(), (std::vector<int>{1, 2}));
  EXPECT_TRUE(recovery.absent().none());
  EXPECT_TRUE(recovery.needs_extra_copies());
  other = recovery;
  EXPECT_EQ(other.handle_loss({3}, 12).why_not, "not recovered: no rank is left that holds stage 1");
  recover(recovery, 11);
  EXPECT_FALSE(recovery.needs_extra_copies());
}

TEST(RecoveryTest, ALateReplacementIsAbsentUntilItIsWelcome) {
  Recovery recovery(4, kFourRanksOfChimera, 5, Recovery::Replacement::Preferred);
  EXPECT_EQ(recovery.handle_loss({2}, 7).why_not, "");
  for (const int rank : {0, 1, 3}) recovery.note({.rank = rank, .kind = RecoveryNote::Kind::Left, .generation = 1});
  EXPECT_FALSE(recovery.all_left()) << "the replacement may still come";
  recovery.leave_out_missing();
  EXPECT_TRUE(recovery.all_left());
  recovery.join();
  recovery.note({.rank = 2, .kind = RecoveryNote::Kind::Left, .generation = 1});
  for (const int rank : {0, 1, 3})
    recovery.note({.rank = rank, .kind = RecoveryNote::Kind::Resumed, .generation = 1, .step = 6});
  recovery.finish();
  ASSERT_TRUE(recovery.is_any_ready());
  EXPECT_EQ(recovery.welcome(), std::vector<int>{2});
  EXPECT_EQ(recovery.generation(), 2);
  EXPECT_FALSE(recovery.is_absent(2));
  recover(recovery, 9);
  EXPECT_TRUE(recovery.has_weights(2));
  EXPECT_EQ(recovery.done(), 1) << "a return is no recovery";
}

TEST(RecoveryTest, RepeatedDeathsOfANewRankMakeItAbsent) {
  Recovery recovery(4, kFourRanksOfChimera, 50, Recovery::Replacement::Preferred);
  EXPECT_EQ(recovery.handle_loss({1}, 7).why_not, "");
  EXPECT_EQ(recovery.handle_loss({1}, 0).why_not, "");
  EXPECT_EQ(recovery.handle_loss({1}, 0).why_not, "");
  EXPECT_FALSE(recovery.is_absent(1));
  EXPECT_EQ(recovery.handle_loss({1}, 0).why_not, "");
  EXPECT_TRUE(recovery.is_absent(1));
}

TEST(RecoveryTest, RecoveriesAreLimited) {
  Recovery recovery(4, kFourRanksOfChimera, 2);
  for (const std::int64_t step : {7, 20}) {
    EXPECT_EQ(recovery.handle_loss({1}, step).why_not, "");
    recover(recovery, step - 1);
  }
  EXPECT_EQ(recovery.done(), 2);
  EXPECT_EQ(recovery.handle_loss({1}, 30).why_not, "not recovered: all attempts of --max-recoveries 2 are used");
}

}  // namespace
}  // namespace chimera
