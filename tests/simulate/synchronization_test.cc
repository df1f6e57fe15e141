#include "simulate/all_reduce_queues.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/error.h"
#include "simulate/cost_table.h"
#include "simulate/simulate.h"
#include "support/schedules.h"

namespace chimera {
namespace {

CostModel with_sums(const Schedule& schedule, double seconds, AllReducePlacement placement, double backward = 2) {
  CostModel costs = CostModel::uniform(schedule, testing::costs(1, backward));
  costs.all_reduce = AllReduceCosts{.seconds = std::vector<double>(static_cast<std::size_t>(schedule.stages), seconds)};
  costs.all_reduce_placement = placement;
  return costs;
}

/// Start of each stage's all-reduce, equal on all its workers.
std::map<std::int64_t, double> starts_of_stages(const Timeline& timeline) {
  std::map<std::int64_t, double> times;
  for (const WorkerTimeline& worker : timeline.workers) {
    for (const TimedAllReduce& sum : worker.all_reduces) {
      const auto [known, is_new] = times.emplace(sum.group.value(), sum.start);
      EXPECT_EQ(known->second, sum.start);
    }
  }
  return times;
}

// B = 2 F. Worker 0: stage 3's last backward ends at 9, then 0B0 10-12, a bubble, 0B1 14-16. Workers 1 and 2 end at 14
// without a bubble between the last backwards of their stages: on worker 1, 2B3 ends at 12 and 1B1 at 14. All-reduces
// run in the order of stages 3, 2, 1, 0.
TEST(SynchronizationTest, EagerOptIsThePapersRuleOnFourWorkers) {
  const Schedule schedule = find_generator("chimera").generate({4, 4});
  EXPECT_EQ(starts_of_stages(simulate(schedule, with_sums(schedule, 0.5, AllReducePlacement::EagerOpt))),
            (std::map<std::int64_t, double>{{0, 16}, {1, 14.5}, {2, 14}, {3, 9}}));
  EXPECT_EQ(starts_of_stages(simulate(schedule, with_sums(schedule, 0.5, AllReducePlacement::Post))),
            (std::map<std::int64_t, double>{{0, 16.5}, {1, 14.5}, {2, 14}, {3, 16}}));
  EXPECT_EQ(starts_of_stages(simulate(schedule, with_sums(schedule, 0.5, AllReducePlacement::Eager))),
            (std::map<std::int64_t, double>{{0, 16}, {1, 14}, {2, 12}, {3, 9}}));
}

/// Checks on workers 0 to D/2 - 1 whether the all-reduce of the larger stage starts before the last op.
TEST(SynchronizationTest, EagerOptWaitsOnTheMiddleWorkersOnly) {
  for (const std::int64_t d : {4, 6, 8, 12}) {
    for (const double backward : {1.0, 2.0}) {
      const Schedule schedule = find_generator("chimera").generate({d, d});
      const Timeline timeline = simulate(schedule, with_sums(schedule, 0.01, AllReducePlacement::EagerOpt, backward));
      const auto sums = starts_of_stages(timeline);
      for (std::int64_t w = 0; w < d / 2; ++w) {
        const bool early = sums.at(d - 1 - w) < timeline.workers[static_cast<std::size_t>(w)].ops.back().end;
        EXPECT_EQ(early, w < d / 2 - 1) << "D=" << d << " worker " << w << " B=" << backward;
      }
    }
  }
}

TEST(SynchronizationTest, ASumWaitsForAllItsWorkers) {
  const Schedule schedule = find_generator("chimera").generate({4, 5});  // more goes down than up
  const Timeline timeline = simulate(schedule, with_sums(schedule, 0.25, AllReducePlacement::Eager));
  for (const auto& [stage, start] : starts_of_stages(timeline)) {
    double last = 0;
    for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
      for (std::size_t i = 0; i < schedule.workers[w].size(); ++i) {
        if (schedule.workers[w][i].stage.value() == stage) last = std::max(last, timeline.workers[w].ops[i].end);
      }
    }
    EXPECT_EQ(start, last) << "stage " << stage;
  }
}

TEST(SynchronizationTest, WhetherAWorkerWaitsIsIndependentOfTheCosts) {
  const Schedule schedule = find_generator("chimera").generate({4, 4});
  CostModel costs = with_sums(schedule, 0.5, AllReducePlacement::EagerOpt);
  costs.latency = 3;  // now workers 1 and 2 also wait between the last backwards of their stages
  const Timeline timeline = simulate(schedule, costs);
  EXPECT_GT(timeline.workers[1].inner_idle, 0);
  EXPECT_EQ(timeline.workers[1].all_reduces[0].after, schedule.workers[1].size()) << "as with B = 2 F and no latency";
  EXPECT_LT(timeline.workers[0].all_reduces[0].after, schedule.workers[0].size());
}

TEST(SynchronizationTest, AWorkerTakesPartInOneSumAtATime) {
  const Schedule schedule = find_generator("chimera").generate({4, 4});
  const Timeline timeline = simulate(schedule, with_sums(schedule, 100, AllReducePlacement::Eager));
  double last = 0;
  for (const WorkerTimeline& worker : timeline.workers) {
    ASSERT_EQ(worker.all_reduces.size(), 2U);
    EXPECT_GE(worker.all_reduces[1].start, worker.all_reduces[0].end);
    last = std::max(last, worker.all_reduces[1].end);
  }
  for (const WorkerTimeline& worker : timeline.workers) EXPECT_EQ(worker.updates.back().start, last);
  EXPECT_GE(timeline.makespan, 9 + 2 * 100);
}

TEST(SynchronizationTest, RabenseifnersAlgorithmIsCounted) {
  const Schedule schedule = find_generator("chimera").generate({2, 2});
  CostModel costs = CostModel::uniform(schedule, testing::costs(1, 2));
  costs.all_reduce = AllReduceCosts{.alpha = 0.5, .beta = 0.25, .bytes = {16, 32}, .data_parallel = 2};
  const CostTable table(schedule, costs);  // four replicas of each stage
  EXPECT_DOUBLE_EQ(table.all_reduce(ParameterGroupId(0)), 2 * 2 * 0.5 + 2 * 0.75 * 0.25 * 16);
  EXPECT_DOUBLE_EQ(table.all_reduce(ParameterGroupId(1)), 2 * 2 * 0.5 + 2 * 0.75 * 0.25 * 32);
}

TEST(SynchronizationTest, OneCopySumsNothing) {
  const Schedule schedule = find_generator("1f1b").generate({2, 2});
  CostModel costs = with_sums(schedule, 7, AllReducePlacement::Eager);
  EXPECT_EQ(simulate(schedule, costs).makespan, 9);
  costs.all_reduce->data_parallel = 2;
  EXPECT_EQ(simulate(schedule, costs).makespan, 9 + 7);
}

TEST(SynchronizationTest, TheUpdateCoversAllCopiesOfAWorker) {
  const Schedule schedule = find_generator("chimera").generate({2, 2});
  CostModel costs = CostModel::uniform(schedule, testing::costs(1, 2));
  costs.optimizer = {0.5, 1};
  const Timeline timeline = simulate(schedule, costs);
  EXPECT_EQ(timeline.ops_end, 6);
  EXPECT_EQ(timeline.makespan, 7.5);
  EXPECT_EQ(timeline.workers[0].idle, 1.5);
}

// Workers 0 and 3 hold the matrix; in the V, worker 0 holds both uses.
TEST(SynchronizationTest, ATiedMatrixIsSummedByTheHoldersOfFirstAndLastStage) {
  const auto timed = [](const char* name) {
    const Schedule schedule = find_generator(name).generate({4, 4});
    CostModel costs = with_sums(schedule, 0, AllReducePlacement::Eager);
    costs.all_reduce->tied = true;
    costs.all_reduce->seconds.push_back(3);
    return simulate(schedule, costs);
  };
  const Timeline line = timed("1f1b");
  EXPECT_EQ(starts_of_stages(line), (std::map<std::int64_t, double>{{4, line.ops_end}}))
      << "after the first stage's last B";
  EXPECT_EQ(line.workers[0].all_reduces.size(), 1U);
  EXPECT_EQ(line.workers[1].all_reduces.size(), 0U);
  EXPECT_EQ(line.workers[3].all_reduces.size(), 1U);
  EXPECT_EQ(line.makespan, line.ops_end + 3);
  const Timeline v = timed("zb-v");
  EXPECT_TRUE(starts_of_stages(v).empty()) << "one owner, no message";
  EXPECT_EQ(v.makespan, v.ops_end);
}

TEST(SynchronizationTest, AStageWithoutMicroBatchesTakesPart) {
  const Schedule schedule = find_generator("chimera").generate({2, 1});  // nothing goes up
  const Timeline timeline = simulate(schedule, with_sums(schedule, 1, AllReducePlacement::Eager));
  EXPECT_EQ(starts_of_stages(timeline), (std::map<std::int64_t, double>{{0, 6}, {1, 4}}))
      << "worker 0 has launched it before all";
}

TEST(SynchronizationTest, RefusesToSumAnAsynchronousScheduleOverWorkers) {
  Schedule schedule = find_generator("chimera").generate({2, 2});
  schedule.updates = AsynchronousUpdates{};
  EXPECT_THROW((void)simulate(schedule, with_sums(schedule, 1, AllReducePlacement::Eager)), ConfigError);
}

}  // namespace
}  // namespace chimera
