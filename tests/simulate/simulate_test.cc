#include "simulate/simulate.h"
#include "simulate/cost_table.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "support/schedules.h"

namespace chimera {
namespace {

TEST(SimulateTest, PaperExampleAtDepthFour) {
  const Timeline timeline = testing::timed(find_generator("chimera").generate({4, 4}), 1, 2);
  EXPECT_EQ(timeline.makespan, 16);
  EXPECT_EQ(timeline.bubble_ratio, 0.25);
  EXPECT_EQ(timeline.lower_bound, 16);
  EXPECT_EQ(timeline.workers[0].busy, 12);
  EXPECT_EQ(timeline.workers[0].idle, 4);
  EXPECT_EQ(timeline.workers[0].peak_in_flight, 3);
  EXPECT_EQ(timeline.workers[0].ops[0].start, 0);
  EXPECT_EQ(timeline.workers[0].ops[0].end, 1);
}

TEST(SimulateTest, LatencyDelaysOnlyMessages) {
  const Schedule schedule = find_generator("gpipe").generate({3, 1});
  EXPECT_DOUBLE_EQ(testing::timed(schedule, 1, 2, 0.5).makespan, 9 + 4 * 0.5);
  Schedule one_worker = find_generator("gpipe").generate({1, 5});
  EXPECT_DOUBLE_EQ(testing::timed(one_worker, 1, 2, 100).makespan, 15);
}

TEST(SimulateTest, StagesMayCostDifferently) {
  const Schedule schedule = find_generator("1f1b").generate({2, 1});
  CostModel costs;
  costs.stages = {{.forward = 1, .backward = 10}, {.forward = 100, .backward = 1000}};
  EXPECT_DOUBLE_EQ(simulate(schedule, costs).makespan, 1111);
}

TEST(SimulateTest, JustInTimeForwardsDelayNoOtherOp) {
  testing::for_every_schedule(8, [](const Schedule& schedule) {
    const CostModel costs = CostModel::uniform(schedule, testing::costs(1, 2), 0.25);
    const Timeline early = simulate(schedule, costs);
    const Timeline late = forwards_just_in_time(schedule, costs, early);
    for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
      for (std::size_t i = 0; i < schedule.workers[w].size(); ++i) {
        const TimedOp& before = early.workers[w].ops[i];
        const TimedOp& after = late.workers[w].ops[i];
        EXPECT_GE(after.start, before.start);
        if (i > 0) EXPECT_LE(late.workers[w].ops[i - 1].end, after.start);
        if (schedule.workers[w][i].kind != OpKind::Forward) EXPECT_EQ(after.start, before.start);
      }
    }
  });
}

TEST(SimulateTest, RejectsImpossibleCosts) {
  const Schedule schedule = find_generator("gpipe").generate({2, 2});
  const auto with = [&](double forward, double latency) {
    return CostModel::uniform(schedule, {.forward = forward}, latency);
  };
  EXPECT_THROW((void)simulate(schedule, with(-1, 0)), ConfigError);
  EXPECT_THROW((void)simulate(schedule, with(std::numeric_limits<double>::quiet_NaN(), 0)), ConfigError);
  EXPECT_THROW((void)simulate(schedule, with(1, -1)), ConfigError);
  EXPECT_THROW((void)simulate(schedule, CostModel{.stages = {StageCosts{}}}), ConfigError);
}

TEST(SimulateTest, ReportsOpsThatCannotRun) {
  Schedule schedule = find_generator("gpipe").generate({2, 2});
  std::reverse(schedule.workers[0].begin(), schedule.workers[0].end());
  EXPECT_THROW((void)testing::timed(schedule, 1, 2), ScheduleError);
}

RC_GTEST_PROP(SimulateProperty, OpsKeepTheirOrderAndTheBoundHolds, ()) {
  const auto& generator = generators()[*rc::gen::inRange<std::size_t>(0, generators().size())];
  const auto shapes = testing::small_shapes(generator.name, 8);
  const Schedule schedule = generator.generate(*rc::gen::elementOf(shapes));
  CostModel costs;
  for (std::int64_t s = 0; s < schedule.stages; ++s)
    costs.stages.push_back({.forward = 0.25 * *rc::gen::inRange(1, 20), .backward = 0.25 * *rc::gen::inRange(1, 20)});
  costs.latency = 0.25 * *rc::gen::inRange(0, 4);
  const Timeline timeline = simulate(schedule, costs);
  RC_ASSERT(timeline.lower_bound <= timeline.makespan + 1e-9);
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
    double free = 0;
    double busy = 0;
    for (std::size_t i = 0; i < schedule.workers[w].size(); ++i) {
      const TimedOp& op = timeline.workers[w].ops[i];
      RC_ASSERT(op.start >= free);
      free = op.end;
      const Op& made = schedule.workers[w][i];
      busy += costs.stages[made.stage.index()].of(made.kind) * schedule.micro_batch_scale /
              static_cast<double>(schedule.slices);
    }
    RC_ASSERT(free <= timeline.makespan);
    RC_ASSERT(std::abs(busy + timeline.workers[w].idle - timeline.makespan) < 1e-9);
  }
}

TEST(SimulateTest, HalfMicroBatchesCostHalf) {
  Schedule schedule = find_generator("gpipe").generate({3, 4});
  schedule.micro_batch_scale = 0.5;
  const Timeline timeline = testing::timed(schedule, 1, 2, 0.25);
  EXPECT_EQ(timeline.makespan, (4 + 3 - 1) * 1.5 + 2 * 2 * 0.25);
  EXPECT_EQ(timeline.workers[0].peak_in_flight, 4);
  EXPECT_EQ(timeline.workers[0].peak_stage_units, 2);
}

TEST(SimulateTest, RecomputationIsAForwardBeforeEachBackward) {
  const Schedule schedule = find_generator("gpipe").generate({1, 3});
  CostModel costs = CostModel::uniform(schedule, testing::costs(1, 2));
  costs.recompute = {1};
  EXPECT_EQ(simulate(schedule, costs).makespan, testing::timed(schedule, 1, 3).makespan);
}

// Worker 1 runs 1B0 with its recomputation from 4 to 7. Worker 0 is idle from 3 on.
TEST(SimulateTest, RecomputationOverlapsWithTheMessageOfTheGradient) {
  const Schedule schedule = find_generator("gpipe").generate({2, 3});
  CostModel costs = CostModel::uniform(schedule, testing::costs(1, 2));
  costs.recompute = {1, 1};
  const Timeline timeline = simulate(schedule, costs);
  EXPECT_EQ(timeline.workers[0].ops[3].start, 6) << "as late as it can";
  EXPECT_EQ(timeline.workers[0].ops[3].end, 9);
  EXPECT_EQ(timeline.workers[0].busy, 3 * (1 + 1 + 2));
  EXPECT_EQ(timeline.makespan, testing::timed(schedule, 1, 3).makespan - 1);
}

TEST(SimulateTest, BubblesAreTheClosedForms) {
  for (const std::int64_t d : {2, 4, 8}) {
    for (const std::int64_t n : {8, 16}) {
      for (const char* name : {"gpipe", "1f1b"}) {
        const Timeline timeline = testing::timed(find_generator(name).generate({d, n}), 1, 2);
        EXPECT_EQ(timeline.inner_bubble, static_cast<double>((d - 1) * 3));
        EXPECT_EQ(timeline.makespan_bubble, static_cast<double>((d - 1) * 3));
      }
    }
    const Timeline chimera = testing::timed(find_generator("chimera").generate({d, d}), 1, 2);
    EXPECT_EQ(chimera.inner_bubble, static_cast<double>((d - 2) * 2));
    EXPECT_EQ(chimera.makespan_bubble, static_cast<double>((d - 2) * 2));
  }
}

TEST(SimulateTest, InnerBubbleExcludesTimeBeforeAndAfterAWorkersOps) {
  const Timeline timeline = testing::timed(find_generator("1f1b").generate({4, 4}), 1, 2);
  EXPECT_EQ(timeline.workers[3].inner_idle, 0);
  EXPECT_EQ(timeline.workers[3].idle, 9);
  EXPECT_EQ(timeline.workers[0].inner_idle, 9);
}

TEST(SimulateTest, AnOpTakesTheProductOfAllFactors) {
  PipelineShape shape = default_shape(find_generator("1f1b"), 2, 2);
  shape.slices = 2;
  Schedule schedule = find_generator("1f1b").generate(shape);
  schedule.micro_batch_scale = 0.5;
  CostModel costs = CostModel::uniform(schedule, testing::costs(8, 16), 0.25);
  costs.recompute = {4, 4};
  costs.slices.bounds = {0, 0.25, 1};
  costs.links = LinkCosts{.beta = 1, .bytes = {6}};
  costs.workers = {1, 3};
  costs.micro_batches = {1, 1.5};
  const CostTable table(schedule, costs);
  const auto op = [](OpKind kind, std::int64_t stage, std::int64_t micro_batch, std::int16_t slice) {
    return Op{.kind = kind,
              .replica = ReplicaId(0),
              .stage = StageId(stage),
              .micro_batch = MicroBatchId(micro_batch),
              .slice = slice};
  };
  EXPECT_DOUBLE_EQ(table.duration(op(OpKind::Forward, 0, 0, 0)), 8 * 0.5 * 0.25);
  EXPECT_DOUBLE_EQ(table.duration(op(OpKind::Forward, 0, 1, 1)), 8 * 0.5 * 0.75 * 1.5);
  EXPECT_DOUBLE_EQ(table.duration(op(OpKind::Forward, 1, 1, 1)), 8 * 0.5 * 0.75 * 1.5 * 3);
  EXPECT_DOUBLE_EQ(table.duration(op(OpKind::Backward, 1, 1, 1)), (16 + 4) * 0.5 * 0.75 * 1.5 * 3);
  EXPECT_DOUBLE_EQ(table.recomputation(op(OpKind::Backward, 1, 1, 1)), 4 * 0.5 * 0.75 * 1.5 * 3);
  EXPECT_DOUBLE_EQ(table.link_time(op(OpKind::Forward, 0, 1, 1)), 6 * 0.5 * 0.75) << "messages have equal bytes";
  costs.workers = {1, 2, 3};
  EXPECT_THROW(CostTable(schedule, costs), ConfigError);
}

}  // namespace
}  // namespace chimera
