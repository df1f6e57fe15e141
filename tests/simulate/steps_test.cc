// Several consecutive steps, and schedules with asynchronous updates.

#include <gtest/gtest.h>

#include "core/error.h"
#include "schedule/weight_versions.h"
#include "simulate/explain.h"
#include "simulate/simulate.h"
#include "support/schedules.h"

namespace chimera {
namespace {

/// Repeats each worker's ops `steps` times with new micro-batches.
Schedule repeated(const Schedule& step, std::int64_t steps) {
  Schedule schedule = step;
  schedule.micro_batches *= steps;
  for (auto& ops : schedule.workers) {
    const auto once = ops;
    for (std::int64_t k = 1; k < steps; ++k) {
      for (Op op : once) {
        op.micro_batch = MicroBatchId(op.micro_batch.value() + k * step.micro_batches);
        ops.push_back(op);
      }
    }
  }
  return schedule;
}

/// 1F1B without a flush and with an update after each backward: PipeDream on two stages, three micro-batches.
Schedule pipedream() {
  Schedule schedule = find_generator("1f1b").generate({2, 3});
  schedule.updates = AsynchronousUpdates{1, 2};
  // Worker 0: 0F0 0F1 0B0 0F2 0B1 0B2; micro-batch 2 uses the first update.
  for (Op& op : schedule.workers[0]) op.weight_version = op.micro_batch.value() == 2 ? 1 : 0;
  for (Op& op : schedule.workers[1]) op.weight_version = static_cast<std::int32_t>(op.micro_batch.value());
  return schedule;
}

TEST(StepsTest, WithoutSumsAndUpdatesTheNextStepFillsTheTail) {
  // 1F1B ends worker 1 at 7 and worker 0 at 9. Worker 1 waits for messages of worker 0.
  const Timeline timeline =
      simulate(repeated(find_generator("1f1b").generate({2, 2}), 3),
               {.stages = {{.forward = 1, .backward = 2}, {.forward = 1, .backward = 2}}}, {.steps = 3});
  EXPECT_EQ(timeline.step_ends, (std::vector<double>{9, 18, 27}));
  EXPECT_EQ(timeline.period, 9);
  EXPECT_EQ(timeline.makespan, 27);
}

TEST(StepsTest, NoWorkerUpdatesBeforeAllAreDone) {
  // Inner workers are done at 14, the end workers at 16.
  const Schedule step = find_generator("chimera").generate({4, 4});
  const Schedule schedule = repeated(step, 4);
  const Timeline timeline = simulate(schedule, CostModel::uniform(schedule, testing::costs(1, 2)), {.steps = 4});
  EXPECT_EQ(timeline.period, 16);
  for (const WorkerTimeline& worker : timeline.workers) EXPECT_EQ(worker.updates[0].start, 16);
}

TEST(StepsTest, AStepBeginsAfterTheUpdateOfItsWorker) {
  const Schedule step = find_generator("chimera").generate({2, 2});
  const Schedule schedule = repeated(step, 2);
  CostModel costs = CostModel::uniform(schedule, testing::costs(1, 2));
  costs.all_reduce = AllReduceCosts{.seconds = {1, 1}};
  costs.optimizer = {0.25, 0.25};
  const Timeline timeline = simulate(schedule, costs, {.steps = 2});
  const Timeline alone = simulate(step, costs);
  for (const WorkerTimeline& worker : timeline.workers) {
    ASSERT_EQ(worker.updates.size(), 2U);
    EXPECT_EQ(worker.updates[0].after, 4U);
    EXPECT_EQ(worker.ops[4].start, worker.updates[0].end);
  }
  EXPECT_EQ(timeline.step_ends[0], alone.makespan);
  EXPECT_EQ(timeline.period, alone.makespan);
  const auto causes = idle_by_cause(explain(schedule, costs, timeline).bubbles);
  EXPECT_EQ(causes[static_cast<std::size_t>(IdleCause::Sync)], 2 * 2 * (alone.makespan - alone.ops_end));
}

TEST(StepsTest, OverlappingStepsWaitForNoOtherWorker) {
  const Schedule step = find_generator("zb-h1").generate({2, 2});
  const Schedule schedule = repeated(step, 3);
  CostModel costs{.stages = {{1, 1, 0.5, 0.5}, {1, 2, 1, 1}}, .optimizer = {0.25, 0.25}};  // Worker 0 ends at 6, 1 at 7
  EXPECT_EQ(simulate(schedule, costs, {.steps = 3}).period, 7.25);
  costs.steps_overlap = true;
  const Timeline timeline = simulate(schedule, costs, {.steps = 3});
  EXPECT_EQ(timeline.period, 6.25);
  for (std::size_t w = 0; w < 2; ++w) {
    const WorkerTimeline& worker = timeline.workers[w];
    ASSERT_EQ(worker.updates.size(), 3U);
    EXPECT_EQ(worker.updates[0].start, worker.ops[step.workers[w].size() - 1].end);
  }
  EXPECT_EQ(simulate(step, costs).makespan, 7.25);
}

TEST(StepsTest, RefusesMixedAndUnequalSteps) {
  Schedule schedule = repeated(find_generator("1f1b").generate({2, 2}), 2);
  const CostModel costs = CostModel::uniform(schedule, testing::costs(1, 2));
  EXPECT_THROW((void)simulate(schedule, costs, {.steps = 3}), ConfigError);
  EXPECT_THROW((void)simulate(schedule, costs, {.steps = 0}), ConfigError);
  std::swap(schedule.workers[0][3], schedule.workers[0][4]);
  EXPECT_THROW((void)simulate(schedule, costs, {.steps = 2}), ScheduleError);
}

TEST(StepsTest, AnAsynchronousWorkerUpdatesBetweenItsOps) {
  const Schedule schedule = pipedream();
  CostModel costs = CostModel::uniform(schedule, testing::costs(1, 2));
  costs.optimizer = {0.5, 0.5};
  const Timeline timeline = simulate(schedule, costs);
  // Worker 1: 1F0 1-2, 1B0 2-4, update until 4.5, 1F1 4.5-5.5, 1B1 5.5-7.5, update, ...
  EXPECT_EQ(timeline.workers[1].ops[2].start, 4.5);
  EXPECT_EQ(timeline.workers[1].updates.size(), 3U);
  EXPECT_EQ(timeline.workers[0].ops[2].start, 4) << "the gradient leaves before the update";
  const auto causes = idle_by_cause(explain(schedule, costs, timeline).bubbles);
  EXPECT_EQ(causes[static_cast<std::size_t>(IdleCause::Sync)], 6 * 0.5 + 0.5) << "all updates, and worker 1 at the end";
}

TEST(StepsTest, AsynchronousStepsOverlap) {
  Schedule schedule = pipedream();
  const Timeline timeline = simulate(schedule, CostModel::uniform(schedule, testing::costs(1, 2)), {.steps = 3});
  EXPECT_EQ(timeline.step_ends, (std::vector<double>{6, 9, 12}));  // one micro-batch per step, a step takes F + B
  EXPECT_EQ(timeline.period, 3);
}

TEST(WeightVersionsTest, AreKeptUntilTheirLastUse) {
  const Schedule schedule = pipedream();
  EXPECT_EQ(peak_weight_versions(schedule, 0), 2) << "0B1 uses version 0 after 0F2 has used version 1";
  EXPECT_EQ(peak_weight_versions(schedule, 1), 1);
  std::vector<std::pair<std::size_t, int>> changes;
  for (const VersionChange& change : version_changes(schedule, 0)) changes.emplace_back(change.after, change.change);
  EXPECT_EQ(changes, (std::vector<std::pair<std::size_t, int>>{{3, 1}, {5, -1}, {5, 1}, {6, -1}, {6, -1}, {6, 1}}));
  EXPECT_EQ(peak_weight_versions(find_generator("1f1b").generate({2, 3}), 0), 1);
}

}  // namespace
}  // namespace chimera
