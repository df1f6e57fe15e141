#include "check/check_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "passes/unroll.h"
#include "support/schedules.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;

struct Fault {
  const char* name;
  std::function<void(Schedule&)> damage;
  ViolationKind kind;
  const char* message;
};

class CheckScheduleTest : public ::testing::TestWithParam<Fault> {};

TEST_P(CheckScheduleTest, FindsTheFault) {
  Schedule schedule = find_generator("chimera").generate({4, 4});
  ASSERT_TRUE(check(schedule).empty());
  GetParam().damage(schedule);
  const auto violations = check(schedule);
  ASSERT_FALSE(violations.empty());
  bool found = false;
  for (const Violation& violation : violations)
    found =
        found || (violation.kind == GetParam().kind && violation.message.find(GetParam().message) != std::string::npos);
  EXPECT_TRUE(found) << "first of " << violations.size() << ": " << violations[0].message;
}

// Worker 1 of the golden picture: 1F0 2F2 1F1 2F3 2B2 1B0 2B3 1B1.
INSTANTIATE_TEST_SUITE_P(
    Faults, CheckScheduleTest,
    ::testing::Values(Fault{"Missing", [](Schedule& s) { s.workers[1].pop_back(); }, ViolationKind::MissingOp,
                            "1B1 (or 1I1 and 1W1) is missing"},
                      Fault{"MissingWeightGradient",
                            [](Schedule& s) { s.workers[1].back().kind = OpKind::BackwardInput; },
                            ViolationKind::MissingOp, "1W1 is missing"},
                      Fault{"WholeAndSplit",
                            [](Schedule& s) {
                              s.workers[1].push_back(s.workers[1].back());
                              s.workers[1].back().kind = OpKind::BackwardInput;
                            },
                            ViolationKind::DoubledOp, "1B1 and 1I1 are both present"},
                      Fault{"InputGradientOfOlderTorch",
                            [](Schedule& s) {
                              s.workers[1].push_back(s.workers[1].back());
                              s.workers[1].back().kind = OpKind::BackwardWeight;
                            },
                            ViolationKind::DoubledOp,
                            "1B1 and 1W1 are both present: a backward is whole or split (in torch 2.5 and older, B is "
                            "the input gradient: write I for it)"},
                      Fault{"Doubled", [](Schedule& s) { s.workers[1].push_back(s.workers[1].front()); },
                            ViolationKind::DoubledOp, "worker 1, op 8 (1F0): the schedule has this op already"},
                      Fault{"WrongWorker", [](Schedule& s) { std::swap(s.workers[1][0], s.workers[2][0]); },
                            ViolationKind::WrongWorker, "worker 1, op 0 (1F2): stage 1 of replica 1 is on worker 2"},
                      Fault{"StageOutOfRange", [](Schedule& s) { s.workers[1][0].stage = StageId(4); },
                            ViolationKind::OutOfRange, "stage 4 is not in 0 to 3"},
                      Fault{"NegativeMicroBatch", [](Schedule& s) { s.workers[1][0].micro_batch = MicroBatchId(-1); },
                            ViolationKind::OutOfRange, "micro-batch -1 is not in 0 to 3"},
                      Fault{"ReplicaOutOfRange", [](Schedule& s) { s.workers[1][0].replica = ReplicaId(2); },
                            ViolationKind::OutOfRange, "replica 2 is not in 0 to 1"},
                      Fault{"MixedReplicas", [](Schedule& s) { s.workers[1][0].replica = ReplicaId(1); },
                            ViolationKind::MixedReplicas, "replica 1, but micro-batch 0 belongs to replica 0"},
                      Fault{"ShortPlacement", [](Schedule& s) { s.placement.worker_of[1].pop_back(); },
                            ViolationKind::BadPlacement, "replica 1 places 3 stages; the schedule has 4"},
                      Fault{"PlacementOutOfRange", [](Schedule& s) { s.placement.worker_of[0][2] = WorkerId(4); },
                            ViolationKind::BadPlacement, "on worker 4; workers are 0 to 3"},
                      Fault{"NoReplica", [](Schedule& s) { s.placement.worker_of.clear(); },
                            ViolationKind::BadPlacement, "no replica"},
                      Fault{"BackwardBeforeForward", [](Schedule& s) { std::swap(s.workers[1][0], s.workers[1][5]); },
                            ViolationKind::Cycle, "a cycle of 1 wait: worker 1 cannot run 1B0 (its op 0) before"},
                      Fault{"CycleOverWorkers", [](Schedule& s) { std::swap(s.workers[0][1], s.workers[0][4]); },
                            ViolationKind::Cycle, "; worker"}),
    [](const auto& tested) { return tested.param.name; });

/// Stage 1 of two: 1F0.0 1F0.1 1B0.1 1F1.0 1B0.0 1F1.1 1B1.1 1B1.0.
Schedule sliced() { return find_generator("1f1b").generate({.stages = 2, .micro_batches = 2, .slices = 2}); }

TEST(CheckSlicesTest, SwappedBackwardsOfAMicroBatchWaitForEachOther) {
  Schedule schedule = sliced();
  ASSERT_TRUE(check(schedule).empty());
  std::swap(schedule.workers[1][2], schedule.workers[1][4]);
  const auto violations = check(schedule);
  ASSERT_EQ(violations.size(), 1U);
  EXPECT_EQ(violations[0].kind, ViolationKind::Cycle);
  EXPECT_EQ(violations[0].message,
            "deadlock, a cycle of 1 wait: worker 1 cannot run 1B0.0 (its op 2) before 1B0.1 (op 4 of worker 1)");
}

TEST(CheckSlicesTest, SwappedForwardsOfAMicroBatchWaitForEachOther) {
  Schedule schedule = sliced();
  std::swap(schedule.workers[0][0], schedule.workers[0][1]);
  const auto violations = check(schedule);
  ASSERT_EQ(violations.size(), 1U);
  EXPECT_EQ(violations[0].message,
            "deadlock, a cycle of 1 wait: worker 0 cannot run 0F0.1 (its op 0) before 0F0.0 (op 1 of worker 0)");
}

TEST(CheckSlicesTest, EverySliceIsThereOnceAndInRange) {
  const auto first_message = [](const std::function<void(Schedule&)>& damage) {
    Schedule schedule = sliced();
    damage(schedule);
    const auto violations = check(schedule);
    return violations.empty() ? "" : violations[0].message;
  };
  EXPECT_EQ(first_message([](Schedule& s) { s.workers[1].pop_back(); }), "1B1.0 (or 1I1.0 and 1W1.0) is missing");
  EXPECT_EQ(first_message([](Schedule& s) { s.workers[0][0].slice = 1; }),
            "worker 0, op 1 (0F0.1): the schedule has this op already");
  EXPECT_EQ(first_message([](Schedule& s) { s.workers[0][0].slice = 2; }),
            "worker 0, op 0 (0F0.2): slice 2 is not in 0 to 1");
  EXPECT_EQ(first_message([](Schedule& s) { s.slices = 0; }), "0 slices are not 1 to 256");
  EXPECT_EQ(first_message([](Schedule& s) { s.updates = AsynchronousUpdates{}; }),
            "2 slices in an asynchronous schedule, which has none");
  EXPECT_EQ(first_message([](Schedule& s) { s.workers[1][3].paired = true; }),
            "worker 1, op 3 (1F1.0): paired; a schedule with slices has no pairs");
}

/// Three steps of pipedream-2bw, two stages: updates after micro-batches 1, 3 and 5.
/// 0F0 0F1 0B0 0F2 0B1 0F3 0B2 0F4 0B3 0F5 0B4 0B5 | 1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3 1F4 1B4 1F5 1B5
Schedule double_buffered() { return unroll(find_generator("pipedream-2bw").generate({2, 2}), 3); }

class CheckVersionsTest : public ::testing::TestWithParam<Fault> {};

TEST_P(CheckVersionsTest, FindsTheFault) {
  Schedule schedule = double_buffered();
  ASSERT_TRUE(check(schedule).empty()) << check(schedule)[0].message;
  GetParam().damage(schedule);
  const auto violations = check(schedule);
  ASSERT_FALSE(violations.empty());
  EXPECT_EQ(violations[0].kind, GetParam().kind);
  EXPECT_THAT(violations[0].message, HasSubstr(GetParam().message));
}

void set_versions(Schedule& schedule, std::int64_t stage, std::int64_t micro_batch, std::int32_t version) {
  for (auto& ops : schedule.workers) {
    for (Op& op : ops) {
      if (op.stage == StageId(stage) && op.micro_batch == MicroBatchId(micro_batch)) op.weight_version = version;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Faults, CheckVersionsTest,
    ::testing::Values(
        Fault{"NotYetMade", [](Schedule& s) { set_versions(s, 0, 2, 1); }, ViolationKind::MissingVersion,
              "worker 0, op 3 (0F2): uses weight version 1 of its stage, which has had 0 updates"},
        Fault{"AgainstTheDelay", [](Schedule& s) { set_versions(s, 1, 2, 1); }, ViolationKind::WrongVersion,
              "worker 1, op 4 (1F2): uses weight version 1, not 0"},
        Fault{"BackwardWithOtherWeights", [](Schedule& s) { s.workers[1][9].weight_version = 2; },
              ViolationKind::MixedVersions, "worker 1, op 9 (1B4): uses weight version 2, its forward used 1"},
        Fault{"BackwardOfALaterUpdate", [](Schedule& s) { std::swap(s.workers[0][4], s.workers[0][6]); },
              ViolationKind::UpdateOrder, "worker 0, op 4 (0B2): belongs to update 2 of its stage, but update 1"},
        Fault{
            "OneBuffer", [](Schedule& s) { s.updates->versions = 1; }, ViolationKind::TooManyVersions,
            "worker 0, op 4 (0B1): makes weight version 1 of its stage while older ones are needed: 2 kept, 1 allowed"},
        Fault{"NoUpdate", [](Schedule& s) { s.updates->micro_batches = 0; }, ViolationKind::OutOfRange,
              "0 micro-batches an update"},
        Fault{"Synchronous", [](Schedule& s) { s.updates.reset(); }, ViolationKind::MissingVersion,
              "a synchronous schedule has version 0 only"}),
    [](const auto& tested) { return tested.param.name; });

TEST(CheckScheduleTest, AcceptsAnyCountsAndIds) {
  const auto kinds = [](std::int64_t stages, std::int64_t micro_batches) {
    Schedule schedule = find_generator("gpipe").generate({1, 1});
    schedule.stages = stages;
    schedule.micro_batches = micro_batches;
    return check(schedule).at(0).kind;
  };
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(kinds(0, 1), ViolationKind::OutOfRange);
  EXPECT_EQ(kinds(-1, kHuge), ViolationKind::OutOfRange);
  EXPECT_EQ(kinds(kHuge, kHuge), ViolationKind::OutOfRange);
}

TEST(CheckScheduleTest, ListsAllFaults) {
  Schedule schedule = find_generator("chimera").generate({4, 4});
  for (auto& ops : schedule.workers) ops.clear();
  EXPECT_EQ(check(schedule).size(), 32U);  // every op is missing
}

TEST(CheckScheduleTest, ACycleNamesOpsThatWaitForEachOther) {
  Schedule schedule = find_generator("1f1b").generate({2, 2});  // 0F0 0F1 0B0 0B1 | 1F0 1B0 1F1 1B1
  std::swap(schedule.workers[0][1], schedule.workers[0][2]);    // 0F0 0B0 0F1: 1F1 follows 1B0, no cycle
  EXPECT_TRUE(check(schedule).empty());
  std::swap(schedule.workers[1][1],
            schedule.workers[1][2]);  // 1F0 1F1 1B0: now 0B0 waits for 1B0 after 1F1 after 0F1
  const auto violations = check(schedule);
  ASSERT_EQ(violations.size(), 1U);
  EXPECT_EQ(violations[0].message,
            "deadlock, a cycle of 2 waits: worker 0 cannot run 0B0 (its op 1) before 1B0 (op 2 of worker 1); "
            "worker 1 cannot run 1F1 (its op 1) before 0F1 (op 2 of worker 0)");
  EXPECT_THAT(violations[0].places, ::testing::ElementsAre(Place{0, 1}, Place{1, 2}, Place{1, 1}, Place{0, 2}));
}

}  // namespace
}  // namespace chimera
