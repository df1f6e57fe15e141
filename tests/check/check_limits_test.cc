#include "check/check_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "check/check_schedule.h"
#include "support/schedules.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> messages(const std::vector<Violation>& violations) {
  std::vector<std::string> result;
  for (const Violation& violation : violations) result.push_back(violation.message);
  return result;
}

TEST(CheckLimitsTest, NamesEachWorkersFirstOpOverTheLimitInTimeOrder) {
  const Schedule schedule = find_generator("1f1b").generate({4, 8});
  EXPECT_THAT(check_limits(schedule, {.in_flight = 4}), IsEmpty());
  EXPECT_THAT(messages(check_limits(schedule, {.in_flight = 2})),
              ElementsAre("worker 0, op 2 (0F2): 3 stage units in flight, 2 allowed; the worker's most is 4",
                          "worker 1, op 2 (1F2): 3 stage units in flight, 2 allowed; the worker's most is 3"));
}

TEST(CheckLimitsTest, StagesAndHalfMicroBatchesCountFractions) {
  const Schedule halves =
      find_generator("chimera").generate({.stages = 4, .micro_batches = 4, .scale = ScaleMethod::Halving});
  EXPECT_EQ(halves.micro_batch_scale, 0.5);
  EXPECT_THAT(check_limits(halves, {.in_flight = 4}), IsEmpty());
  EXPECT_EQ(check_limits(halves, {.in_flight = 3.5}).size(), 2U);

  Schedule one_worker{.name = "by hand", .stages = 2, .micro_batches = 1, .placement = {}, .workers = {}};
  one_worker.placement.worker_of = {{WorkerId(0), WorkerId(0)}};
  const auto op = [](OpKind kind, std::int64_t s) { return Op{kind, ReplicaId(0), StageId(s), MicroBatchId(0)}; };
  one_worker.workers = {
      {op(OpKind::Forward, 0), op(OpKind::Forward, 1), op(OpKind::Backward, 1), op(OpKind::Backward, 0)}};
  EXPECT_THAT(check_limits(one_worker, {.in_flight = 1}), IsEmpty());
  EXPECT_THAT(messages(check_limits(one_worker, {.in_flight = 0.9})),
              ElementsAre("worker 0, op 1 (1F0): 1 stage units in flight, 0.9 allowed; the worker's most is 1"));
}

TEST(CheckLimitsTest, BytesCountActivationsAndTheWeightsOfEveryReplica) {
  const Schedule schedule = find_generator("chimera").generate({4, 4});
  const auto with = [](double bytes) {
    return Limits{.memory = MemoryLimit{.bytes = bytes, .weight_bytes = 100, .activation_bytes = 10}};
  };
  EXPECT_THAT(check_limits(schedule, with(240)), IsEmpty());  // two replicas, four micro-batches in the middle
  EXPECT_THAT(messages(check_limits(schedule, with(235))),
              ElementsAre("worker 1, op 3 (2F3): 240 bytes held, 235 allowed; the worker's most is 240",
                          "worker 2, op 3 (2F1): 240 bytes held, 235 allowed; the worker's most is 240"));
}

TEST(CheckLimitsTest, OlderWeightVersionsCount) {
  const Schedule schedule = find_generator("pipedream").generate({3, 6});
  const auto held = [&](double bytes) {
    return check_limits(schedule, {.memory = MemoryLimit{.bytes = bytes, .weight_bytes = 100, .activation_bytes = 0}});
  };
  EXPECT_THAT(held(300), IsEmpty());  // D versions at stage 0
  ASSERT_EQ(held(250).size(), 1U);
  EXPECT_EQ(held(250)[0].places[0].worker, 0U);
  EXPECT_EQ(held(150).size(), 2U);
  EXPECT_EQ(held(99).size(), 3U);
}

TEST(CheckSampleOrderTest, NotesTheFirstOpOutOfOrderAtEachStage) {
  Schedule schedule = find_generator("gpipe").generate({2, 3});
  EXPECT_THAT(check_sample_order(schedule), IsEmpty());
  for (auto& ops : schedule.workers) std::swap(ops[3], ops[5]);  // B2 B1 B0
  ASSERT_THAT(check(schedule), IsEmpty());
  EXPECT_THAT(messages(check_sample_order(schedule)),
              ElementsAre("worker 0, op 4 (0B1): accumulates after micro-batch 2 of its replica, out of sample order",
                          "worker 1, op 4 (1B1): accumulates after micro-batch 2 of its replica, out of sample order"));
}

TEST(CheckSampleOrderTest, ReplicasHaveSeparateOrders) {
  EXPECT_THAT(check_sample_order(find_generator("chimera").generate({4, 8})), IsEmpty());
}

}  // namespace
}  // namespace chimera
