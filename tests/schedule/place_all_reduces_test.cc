#include "schedule/place_all_reduces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/schedules.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

/// All-reduces of a worker: the stage, and the op after which the all-reduce starts, such as ("3", "3B3").
using Starts = std::vector<std::pair<std::int64_t, std::string>>;

std::vector<Starts> starts(const Schedule& schedule, AllReducePlacement placement, bool every_stage = false,
                           bool tied = false) {
  const OpTable table(schedule);
  const auto placed = place_all_reduces(table, unit_start_times(table), {every_stage, placement, tied});
  std::vector<Starts> result;
  for (std::size_t w = 0; w < placed.size(); ++w) {
    auto& worker = result.emplace_back();
    for (const AllReduceStart& start : placed[w]) {
      const bool first = start.after < 0;
      worker.emplace_back(start.group.value(),
                          first ? "start" : to_text(schedule.workers[w][static_cast<std::size_t>(start.after)]));
    }
  }
  return result;
}

// Worker 0: 0F0 . 0F1 3F2 3B2 3F3 3B3 . 0B0 . 0B1, worker 1: . 1F0 2F2 1F1 2F3 2B2 1B0 2B3 1B1 . (B = 2F).
TEST(PlaceAllReducesTest, EagerOptStartsEarlyIfTheWorkerWaitsAfterwards) {
  const auto workers = starts(find_generator("chimera").generate({4, 4}), AllReducePlacement::EagerOpt);
  EXPECT_THAT(workers[0], ElementsAre(Pair(3, "3B3"), Pair(0, "0B1")));
  EXPECT_THAT(workers[1], ElementsAre(Pair(2, "1B1"), Pair(1, "1B1"))) << "no bubble follows: both at the end";
  EXPECT_THAT(workers[2], ElementsAre(Pair(2, "1B3"), Pair(1, "1B3")));
  EXPECT_THAT(workers[3], ElementsAre(Pair(3, "3B1"), Pair(0, "0B3")));
}

TEST(PlaceAllReducesTest, EagerStartsRightAfterAStagesLastBackward) {
  const auto workers = starts(find_generator("chimera").generate({4, 4}), AllReducePlacement::Eager);
  EXPECT_THAT(workers[0], ElementsAre(Pair(3, "3B3"), Pair(0, "0B1")));
  EXPECT_THAT(workers[1], ElementsAre(Pair(2, "2B3"), Pair(1, "1B1")));
}

TEST(PlaceAllReducesTest, PostStartsAfterTheLastOp) {
  const auto workers = starts(find_generator("chimera").generate({4, 4}), AllReducePlacement::Post);
  EXPECT_THAT(workers[0], ElementsAre(Pair(3, "0B1"), Pair(0, "0B1")));
  EXPECT_THAT(workers[1], ElementsAre(Pair(2, "1B1"), Pair(1, "1B1")));
}

TEST(PlaceAllReducesTest, EagerOptIsThePapersRuleOnChimera) {
  // Worker w < D/2 starts its larger stage, D-1-w, early, except for the middle worker; the others start at the end.
  for (const std::int64_t depth : {4, 6, 8}) {
    const Schedule schedule = find_generator("chimera").generate({depth, depth});
    const auto workers = starts(schedule, AllReducePlacement::EagerOpt);
    for (std::int64_t w = 0; w < depth; ++w) {
      const std::int64_t larger = std::max(w, depth - 1 - w);
      const auto& worker = workers[static_cast<std::size_t>(w)];
      const std::string last = to_text(schedule.workers[static_cast<std::size_t>(w)].back());
      ASSERT_EQ(worker.size(), 2U);
      EXPECT_EQ(worker[0].first, larger);
      EXPECT_EQ(worker[0].second != last, larger != depth / 2) << "D=" << depth << ", worker " << w;
      EXPECT_EQ(worker[1].second, last);
    }
  }
}

TEST(PlaceAllReducesTest, AStageOfOneWorkerIsSummedIfAsked) {
  const Schedule schedule = find_generator("1f1b").generate({3, 3});
  EXPECT_THAT(starts(schedule, AllReducePlacement::Eager)[1], ElementsAre());
  EXPECT_THAT(starts(schedule, AllReducePlacement::Eager, true)[1], ElementsAre(Pair(1, "1B2")));
}

TEST(PlaceAllReducesTest, ACopyWithoutMicroBatchesHasNothingToWaitFor) {
  const Schedule schedule = find_generator("chimera").generate({4, 1});  // no micro-batch takes the up pipeline
  EXPECT_THAT(starts(schedule, AllReducePlacement::Eager)[0], ElementsAre(Pair(3, "start"), Pair(0, "0B0")));
  EXPECT_THAT(starts(schedule, AllReducePlacement::Post)[0], ElementsAre(Pair(3, "0B0"), Pair(0, "0B0")));
}

// The tied matrix is all-reduced as a stage above the last, after a worker's last backward that uses it.
TEST(PlaceAllReducesTest, TheTiedMatrixIsSummedByTheHoldersOfFirstAndLastStage) {
  const Schedule schedule = find_generator("1f1b").generate({4, 4});
  const auto workers = starts(schedule, AllReducePlacement::Eager, false, true);
  EXPECT_THAT(workers[0], ElementsAre(Pair(4, "0B3")));
  EXPECT_THAT(workers[1], ElementsAre());
  EXPECT_THAT(workers[2], ElementsAre());
  EXPECT_THAT(workers[3], ElementsAre(Pair(4, "3B3")));
}

TEST(PlaceAllReducesTest, BidirectionalOwnersOfTheTiedMatrixAreTheReplicas) {
  const auto workers = starts(find_generator("chimera").generate({4, 4}), AllReducePlacement::Eager, false, true);
  EXPECT_THAT(workers[0], ElementsAre(Pair(3, "3B3"), Pair(0, "0B1"), Pair(4, "0B1")));
  EXPECT_THAT(workers[1], ElementsAre(Pair(2, "2B3"), Pair(1, "1B1"))) << "no owner";
  EXPECT_THAT(workers[3], ElementsAre(Pair(3, "3B1"), Pair(0, "0B3"), Pair(4, "0B3")));
}

TEST(PlaceAllReducesTest, ASingleOwnerAddsUpTheUsesOfTheTiedMatrix) {
  for (const char* name : {"zb-v", "dualpipev", "hanayo", "none"}) {
    const bool whole = std::string(name) == "none";
    const Schedule schedule = find_generator(whole ? "1f1b" : name).generate({whole ? 1 : 4, 8});
    const auto workers = starts(schedule, AllReducePlacement::Eager, false, true);
    ASSERT_EQ(workers[0].size(), 1U) << name;
    EXPECT_EQ(workers[0][0].first, schedule.stages) << name;
    for (std::size_t w = 1; w < workers.size(); ++w) EXPECT_THAT(workers[w], ElementsAre()) << name;
  }
}

TEST(PlaceAllReducesTest, AllWorkersStartAllReducesInOneOrder) {
  testing::for_every_schedule(6, [](const Schedule& schedule) {
    for (const auto placement : {AllReducePlacement::Eager, AllReducePlacement::EagerOpt, AllReducePlacement::Post}) {
      std::vector<std::vector<std::int64_t>> earlier(static_cast<std::size_t>(schedule.stages) + 1);  // [stage]
      for (const Starts& worker : starts(schedule, placement, true, /*tied=*/true)) {
        for (std::size_t i = 1; i < worker.size(); ++i) {
          for (std::size_t j = 0; j < i; ++j) {
            earlier[static_cast<std::size_t>(worker[i].first)].push_back(worker[j].first);
            EXPECT_THAT(earlier[static_cast<std::size_t>(worker[j].first)],
                        ::testing::Not(::testing::Contains(worker[i].first)));
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace chimera
