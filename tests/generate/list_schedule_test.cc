#include "generate/list_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "check/check_schedule.h"
#include "core/invariant.h"
#include "generate/shape.h"
#include "support/schedules.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Backward before forward, then the older micro-batch.
std::int64_t backward_first(const Op& op, std::int64_t) { return op.kind == OpKind::Forward ? 1 : 0; }

ListTask linear(std::int64_t stages, std::size_t micro_batches) {
  return {.placement = loop_placement(stages, 1), .replica_of = std::vector<ReplicaId>(micro_batches)};
}

/// A bidirectional pipeline; micro-batches alternate between down and up.
ListTask both_ways(std::int64_t stages, std::size_t micro_batches) {
  ListTask task = linear(stages, micro_batches);
  auto& up = task.placement.worker_of.emplace_back();
  for (std::int64_t s = 0; s < stages; ++s) up.emplace_back(stages - 1 - s);
  for (std::size_t m = 1; m < micro_batches; m += 2) task.replica_of[m] = ReplicaId(1);
  return task;
}

TEST(ListScheduleTest, BackwardFirstWithPipelineCreditsIsOneFOneB) {
  ListTask task = linear(4, 6);
  task.stage_credits = {{4, 3, 2, 1}};
  EXPECT_EQ(testing::orders(list_schedule(task, backward_first).schedule),
            testing::orders(find_generator("1f1b").generate({4, 6})));
}

TEST(ListScheduleTest, ForwardFirstIsGpipe) {
  const auto forward_first = [](const Op& op, std::int64_t) { return op.kind == OpKind::Forward ? 0 : 1; };
  EXPECT_EQ(testing::orders(list_schedule(linear(4, 6), forward_first).schedule),
            testing::orders(find_generator("gpipe").generate({4, 6})));
  ListTask sliced = linear(4, 6);
  sliced.slices = 3;
  EXPECT_EQ(testing::ops(list_schedule(sliced, forward_first).schedule),
            testing::ops(find_generator("gpipe").generate({.stages = 4, .micro_batches = 6, .slices = 3})));
}

TEST(ListScheduleTest, WeightGradientsFillTheGaps) {
  ListTask task = linear(3, 3);
  task.split_backward = true;
  task.stage_credits = {{3, 3, 3}};
  const auto weights_last = [](const Op& op, std::int64_t) {
    return op.kind == OpKind::BackwardInput ? 0 : op.kind == OpKind::Forward ? 1 : 2;
  };
  const ListResult result = list_schedule(task, weights_last);
  EXPECT_THAT(testing::orders(result.schedule),
              ElementsAre("F0 F1 F2 I0 W0 I1 W1 I2 W2", "F0 F1 F2 I0 W0 I1 W1 I2 W2", "F0 I0 F1 I1 F2 I2 W0 W1 W2"));
  EXPECT_EQ(result.makespan, 11);  // N (F+I+W) + (D-1) F
}

TEST(ListScheduleTest, ClockAndPeakMatchTheSimulator) {
  constexpr std::int64_t kOpTicks = 4;
  for (const std::int64_t latency : {0, 1}) {
    for (const bool split : {false, true}) {
      ListTask task = both_ways(6, 13);
      task.split_backward = split;
      task.op_ticks = kOpTicks;
      task.latency_ticks = latency;
      const CostModel costs{.stages = std::vector<StageCosts>(6, testing::costs(1, 2)),
                            .latency = static_cast<double>(latency) / kOpTicks};
      task.worker_credits.assign(6, 5);
      const ListResult result = list_schedule(task, backward_first);
      const Timeline timeline = simulate(result.schedule, costs);
      EXPECT_DOUBLE_EQ(static_cast<double>(result.makespan) / kOpTicks, timeline.makespan);
      std::int64_t peak = 0;
      for (const auto& worker : timeline.workers) peak = std::max(peak, worker.peak_in_flight);
      EXPECT_EQ(result.peak_in_flight, peak);
    }
  }
}

/// A random rank.
ListRank random_rank(std::uint64_t seed) {
  return [seed](const Op& op, std::int64_t) {
    std::uint64_t x = seed;
    for (const std::int64_t part :
         {static_cast<std::int64_t>(op.kind), op.stage.value(), op.replica.value(), op.micro_batch.value()}) {
      x = (x + static_cast<std::uint64_t>(part) + 1) * 0x9E3779B97F4A7C15u;
      x ^= x >> 29;
    }
    return static_cast<std::int64_t>(x >> 60);
  };
}

TEST(ListScheduleTest, TightestCreditsNeverDeadlockWithAnyRank) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const auto stages = static_cast<std::int64_t>(2 + seed % 5);
    ListTask task = both_ways(stages, 1 + seed % 11);
    if (seed % 3 == 0) {  // a V: a worker holds two chunks of one replica
      task.placement.worker_of.resize(1);
      for (std::int64_t s = stages; s-- > 0;) task.placement.worker_of[0].emplace_back(s);
      task.replica_of.assign(task.replica_of.size(), ReplicaId(0));
    }
    task.split_backward = seed % 2 == 0;
    const std::int64_t needed = seed % 3 == 0 ? 2 : 1;
    task.slices = 1 + static_cast<std::int64_t>(seed / 5 % 3);
    task.worker_credits.assign(static_cast<std::size_t>(stages),
                               needed * task.slices + static_cast<std::int64_t>(seed / 7 % 3));
    if (seed % 4 == 0)
      task.stage_credits.assign(task.placement.num_replicas(),
                                std::vector<std::int64_t>(task.placement.worker_of[0].size(), task.slices));
    const ListResult result = list_schedule(task, random_rank(seed));
    EXPECT_TRUE(check(result.schedule).empty()) << seed;
    EXPECT_LE(result.peak_in_flight, task.worker_credits[0]) << seed;
  }
}

TEST(ListScheduleTest, StageCreditsHold) {
  ListTask task = linear(4, 9);
  task.stage_credits = {{2, 2, 1, 1}};
  task.split_backward = true;
  const Timeline timeline = testing::timed(list_schedule(task, backward_first).schedule, 1, 2);
  std::vector<std::int64_t> peaks;
  for (const auto& worker : timeline.workers) peaks.push_back(worker.peak_in_flight);
  EXPECT_THAT(peaks, ElementsAre(2, 2, 1, 1));
}

TEST(ListScheduleTest, FewestCreditsStopAtTheDeadline) {
  const ListTask task = linear(4, 6);
  const auto with_deadline = [&](std::int64_t deadline) {
    return with_fewest_credits(task, backward_first, {1, 6}, deadline);
  };
  EXPECT_EQ(with_deadline(27).peak_in_flight, 4);  // (N + D - 1)(F + B)
  EXPECT_EQ(with_deadline(27).makespan, 27);
  EXPECT_EQ(with_deadline(0).makespan, 27);
  EXPECT_EQ(with_deadline(0).peak_in_flight, 4);
  EXPECT_EQ(with_deadline(1000).peak_in_flight, 1);
}

void expect_rejected(const ListTask& task, const char* what) {
  try {
    (void)list_schedule(task, backward_first);
    ADD_FAILURE() << "accepted; wanted: " << what;
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), HasSubstr(what));
  }
}

TEST(ListScheduleTest, InfeasibleLimitsNameTheWaitingOps) {
  ListTask task = linear(3, 2);
  task.stage_credits = {{3, 0, 1}};
  expect_rejected(task, "a limit on activations has no room for one micro-batch");
  task.stage_credits.clear();
  task.placement.worker_of[0] = {WorkerId(0), WorkerId(1), WorkerId(0)};
  task.worker_credits = {1, 1};
  expect_rejected(task, "a limit on activations has no room for one micro-batch");
}

TEST(ListScheduleTest, BetterMeansEarlierThenLessMemory) {
  const ListResult early{.schedule = {}, .makespan = 3, .peak_in_flight = 9};
  const ListResult late{.schedule = {}, .makespan = 4, .peak_in_flight = 1};
  const ListResult lean{.schedule = {}, .makespan = 3, .peak_in_flight = 2};
  EXPECT_EQ(pick_better(late, early).makespan, 3);
  EXPECT_EQ(pick_better(early, late).makespan, 3);
  EXPECT_EQ(pick_better(early, lean).peak_in_flight, 2);
  EXPECT_EQ(pick_better(lean, early).peak_in_flight, 2);
}

}  // namespace
}  // namespace chimera
