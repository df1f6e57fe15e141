// Copies of activations to host memory and back, in times that can be computed by hand.

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "schedule/offload.h"
#include "simulate/explain.h"
#include "simulate/simulate.h"
#include "support/schedules.h"

namespace chimera {
namespace {

/// F takes 2, B takes 4, a copy `seconds`; a micro-batch has 10 bytes, of which 8 can be offloaded.
CostModel costs_with_copies_of(double seconds, const Schedule& schedule) {
  CostModel costs = CostModel::uniform(schedule, testing::costs(2, 4));
  costs.memory.assign(static_cast<std::size_t>(schedule.stages), {.activations = 10, .boundary = 1});
  costs.offload = OffloadCosts{.beta = seconds / 8, .bytes = std::vector<double>(costs.memory.size(), 8)};
  return costs;
}

std::vector<double> starts(const Timeline& timeline) {
  std::vector<double> times;
  for (const TimedOp& op : timeline.workers[0].ops) times.push_back(op.start);
  return times;
}

double peak(const Schedule& schedule, const CostModel& costs, const Timeline& timeline) {
  const auto points = explain(schedule, costs, timeline).memory[0];
  return std::ranges::max_element(points, {}, &MemoryPoint::amount)->amount;
}

/// The example of schedule/offload.h.
TEST(OffloadTest, ActivationsOfASoonBackwardStay) {
  std::vector<Op> ops;
  for (const auto& [kind, micro_batch] : {std::pair{OpKind::Forward, 0},
                                          {OpKind::Forward, 1},
                                          {OpKind::Backward, 0},
                                          {OpKind::Forward, 2},
                                          {OpKind::Backward, 1},
                                          {OpKind::Backward, 2}})
    ops.push_back({kind, ReplicaId(0), StageId(0), MicroBatchId(micro_batch)});
  const auto offloaded = offloaded_forwards(ops, {StageId(0)}, Pairs::InOrder);
  ASSERT_EQ(offloaded.size(), 1U);
  EXPECT_EQ(ops[offloaded[0].forward].micro_batch, MicroBatchId(1));
  EXPECT_EQ(offloaded[0].load, 3U);  // F2
}

TEST(OffloadTest, CopiesFitBehindTheOps) {
  const Schedule schedule = find_generator("gpipe").generate({1, 4});
  const CostModel costs = costs_with_copies_of(1, schedule);
  const Timeline timeline = simulate(schedule, costs);
  EXPECT_EQ(starts(timeline), (std::vector<double>{0, 2, 4, 6, 8, 12, 16, 20}));
  EXPECT_EQ(timeline.makespan, 24);
  // From 6 to 7: F2, whose copy ends at 7; F3, which runs; B0, whose load is issued; 2 bytes each of F0 and F1.
  EXPECT_EQ(peak(schedule, costs, timeline), 10 + 10 + 8 + 2 + 2);
  CostModel on_device = costs;
  on_device.offload.reset();
  EXPECT_EQ(peak(schedule, on_device, simulate(schedule, on_device)), 40);
}

TEST(OffloadTest, SlowCopiesHoldForwardsAndBackwards) {
  const Schedule schedule = find_generator("gpipe").generate({1, 4});
  const CostModel costs = costs_with_copies_of(3, schedule);
  // To host memory: F0 until 5, F1 until 8 (so F3 starts then), F2 until 11, F3 until 17. Loads: B0 until 14, B1 20, B2
  // 23, B3 27.
  const std::vector<double> expected = {0, 2, 5, 8, 14, 20, 24, 28};
  EXPECT_EQ(starts(simulate(schedule, costs)), expected);
  EXPECT_EQ(starts(simulate(schedule, costs, {.cores = {.cores = 1}})), expected);
}

TEST(OffloadTest, RecomputationWaitsForTheLoad) {
  const Schedule schedule = find_generator("gpipe").generate({1, 4});
  CostModel costs = costs_with_copies_of(3, schedule);
  costs.recompute = {2};
  // Loads: B0 until 14, B1 20, B2 23 or 3 after the end of B0, B3 3 after the end of B1.
  EXPECT_EQ(starts(simulate(schedule, costs)), (std::vector<double>{0, 2, 5, 8, 14, 20, 26, 32}));
}

TEST(OffloadTest, MemoryDoesNotGrowWithMicroBatches) {
  const auto peak_of = [](std::int64_t micro_batches) {
    const Schedule schedule = find_generator("gpipe").generate({1, micro_batches});
    const CostModel costs = costs_with_copies_of(1, schedule);
    return peak(schedule, costs, simulate(schedule, costs)) - 2 * static_cast<double>(micro_batches);
  };
  EXPECT_EQ(peak_of(8), peak_of(16));
}

}  // namespace
}  // namespace chimera
