#include "simulate/explain.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "core/random.h"
#include "simulate/simulate.h"
#include "support/schedules.h"

namespace chimera {
namespace {

struct Explained {
  Schedule schedule;
  CostModel costs;
  Timeline timeline;
  Explanation explanation;
};

Explained run(const Schedule& schedule, const CostModel& costs) {
  Explained result{schedule, costs, simulate(schedule, costs), {}};
  result.explanation = explain(result.schedule, result.costs, result.timeline);
  return result;
}

Explained run(const std::string& name, const PipelineShape& shape, double forward, double backward,
              double latency = 0) {
  const Schedule schedule = find_generator(name).generate(shape);
  return run(schedule, CostModel::uniform(schedule, testing::costs(forward, backward), latency));
}

/// `0-3 warm-up 1F0` for each bubble of a worker.
std::vector<std::string> bubbles(const Explained& run, std::size_t worker) {
  std::vector<std::string> lines;
  for (const Bubble& bubble : run.explanation.bubbles[worker]) {
    std::ostringstream line;
    line << bubble.start << "-" << bubble.end << " " << to_text(bubble.cause);
    if (bubble.waits_for)
      line << " " << to_text(run.schedule.workers[bubble.waits_for->worker][bubble.waits_for->position]);
    lines.push_back(line.str());
  }
  return lines;
}

std::vector<std::string> path(const Explained& run) {
  std::vector<std::string> ops;
  for (const Place& place : run.explanation.critical_path)
    ops.push_back(to_text(run.schedule.workers[place.worker][place.position]));
  return ops;
}

using Lines = std::vector<std::string>;

TEST(ExplainTest, ASliceHoldsItsPartOfTheBytes) {
  const Schedule schedule = find_generator("gpipe").generate({.stages = 1, .micro_batches = 1, .slices = 2});
  CostModel costs = CostModel::uniform(schedule, testing::costs(1, 2));
  costs.slices.bounds = {0, 0.75, 1};
  const auto peak = [&] {
    double most = 0;
    const Explained explained = run(schedule, costs);
    for (const MemoryPoint& point : explained.explanation.memory[0]) most = std::max(most, point.amount);
    return most;
  };
  EXPECT_EQ(peak(), 1) << "stage units: both slices";
  costs.memory = {StageMemory{.weights = 10, .activations = 100, .boundary = 8, .keys_and_values = 20}};
  EXPECT_EQ(peak(), 10 + 120);
  const auto memory = run(schedule, costs).explanation.memory[0];
  EXPECT_EQ(memory[0].amount, 10 + 0.75 * 120) << "the first slice alone";
  costs.recompute = {1};
  EXPECT_EQ(peak(), 10 + 0.75 * 120) << "the first slice again, after the second is gone";
}

TEST(ExplainTest, AForwardHeldBackWaitsForNoMessage) {
  const Schedule schedule = find_generator("1f1b").generate({4, 4});
  const CostModel unit = CostModel::uniform(schedule, StageCosts{});
  const Timeline late = forwards_just_in_time(schedule, unit, simulate(schedule, unit));
  for (const auto& bubbles : explain(schedule, unit, late).bubbles) {
    for (const Bubble& bubble : bubbles) EXPECT_NE(bubble.cause, IdleCause::Latency) << "from " << bubble.start;
  }
}

TEST(ExplainTest, WarmUpDependencyAndImbalance) {
  const Explained two = run("1f1b", {2, 2}, 1, 2);
  EXPECT_EQ(bubbles(two, 0), (Lines{"2-4 dependency 1B0", "6-7 dependency 1B1"}));
  EXPECT_EQ(bubbles(two, 1), (Lines{"0-1 warm-up 0F0", "7-9 imbalance"}));
}

TEST(ExplainTest, LatencyBeginsWhenTheInputIsMade) {
  const Explained one = run("gpipe", {2, 1}, 1, 2, 0.5);
  EXPECT_EQ(bubbles(one, 0), (Lines{"1-4.5 dependency 1B0", "4.5-5 latency 1B0"}));
  EXPECT_EQ(bubbles(one, 1), (Lines{"0-1 warm-up 0F0", "1-1.5 latency 0F0", "4.5-7 imbalance"}));
}

TEST(ExplainTest, ABlockingSendIsLatencyOfTheSender) {
  const Schedule schedule = find_generator("gpipe").generate({2, 2});
  CostModel costs = CostModel::uniform(schedule, testing::costs(1, 1), 2);
  costs.blocking_sends = true;
  const Explained blocked = run(schedule, costs);
  EXPECT_EQ(bubbles(blocked, 0), (Lines{"1-3 latency 0F0", "4-6 latency 0F1", "6-8 dependency 1B0", "8-10 latency 1B0",
                                        "11-13 latency 1B1"}));
}

TEST(ExplainTest, SumsAndUpdatesAreSync) {
  const Schedule schedule = find_generator("chimera").generate({2, 1});
  CostModel costs = CostModel::uniform(schedule, testing::costs(1, 2));
  costs.all_reduce = AllReduceCosts{.seconds = {1, 1}};
  costs.optimizer = {0.25, 0.25};
  const Explained one = run(schedule, costs);
  // Worker 0 has no backward of stage 1, so that all-reduce starts at 4. Worker 1 waits for worker 0's last op and for
  // stage 0.
  EXPECT_EQ(bubbles(one, 0), (Lines{"1-4 dependency 1B0", "6-7 sync", "7-7.5 sync"}));
  EXPECT_EQ(bubbles(one, 1), (Lines{"0-1 warm-up 0F0", "4-5 sync", "5-6 imbalance", "6-7 sync", "7-7.5 sync"}));
}

TEST(ExplainTest, TheCriticalPathOfThePapersExample) {  // C_f = 6, C_b = 10 at D = N = 6
  const Explained six = run("chimera", {6, 6}, 1, 2.03125);
  std::map<OpKind, int> counts;
  for (const Place& place : six.explanation.critical_path)
    ++counts[six.schedule.workers[place.worker][place.position].kind];
  EXPECT_EQ(counts[OpKind::Forward], 6);
  EXPECT_EQ(counts[OpKind::Backward], 10);
}

TEST(ExplainTest, TheCriticalPathGoesThroughMessagesAndSums) {
  EXPECT_EQ(path(run("gpipe", {2, 1}, 1, 2, 0.5)), (Lines{"0F0", "1F0", "1B0", "0B0"}));
  const Schedule schedule = find_generator("chimera").generate({4, 4});
  CostModel costs = CostModel::uniform(schedule, testing::costs(1, 2));
  costs.all_reduce = AllReduceCosts{.seconds = {0, 0, 0, 100}};
  // Stage 3 starts its all-reduce at 9, after 3B3 on worker 0 (and 3B1 on worker 3). This all-reduce determines the
  // makespan.
  const Explained four = run(schedule, costs);
  EXPECT_EQ(four.timeline.makespan, 109);
  EXPECT_EQ(four.timeline.workers[four.explanation.critical_path.back().worker]
                .ops[four.explanation.critical_path.back().position]
                .end,
            9);
}

TEST(ExplainTest, MessagesLeaveAndArrive) {
  const Schedule schedule = find_generator("gpipe").generate({2, 2});
  CostModel costs = CostModel::uniform(schedule, testing::costs(1, 1));
  costs.links = LinkCosts{0.5, 1, {3}};
  const Explained two = run(schedule, costs);
  ASSERT_EQ(two.explanation.messages.size(), 4U);
  const Message& second = two.explanation.messages[1];  // 0F1 waits until 0F0 has left the link
  EXPECT_EQ(second.from, (Place{0, 1}));
  EXPECT_EQ(second.to, (Place{1, 1}));
  EXPECT_EQ(second.sent, 4);
  EXPECT_EQ(second.arrived, 7.5);
}

std::vector<std::pair<double, double>> points(const std::vector<MemoryPoint>& memory) {
  std::vector<std::pair<double, double>> result;
  for (const MemoryPoint& point : memory) result.emplace_back(point.time, point.amount);
  return result;
}

TEST(ExplainTest, MemoryIsInStageUnitsWithoutBytes) {
  const Explained two = run("gpipe", {2, 2}, 1, 2);
  EXPECT_EQ(points(two.explanation.memory[1]),
            (std::vector<std::pair<double, double>>{{1, 1}, {2, 2}, {5, 1}, {7, 0}}));
}

TEST(ExplainTest, MemoryInBytesCountsEverything) {
  const Schedule schedule = find_generator("gpipe").generate({2, 1});
  CostModel costs = CostModel::uniform(schedule, testing::costs(1, 2), 0.5);
  costs.memory = {{1000, 2000, 4000, 100, 10}, {1000, 2000, 4000, 100, 20}};
  using Points = std::vector<std::pair<double, double>>;
  // 0F0 runs 0-1. Its output (20 bytes, the input of stage 1) is among its activations. Its gradient is here from 5 to
  // 7.
  EXPECT_EQ(points(run(schedule, costs).explanation.memory[0]), (Points{{0, 7100}, {5, 7120}, {7, 7000}}));
  EXPECT_EQ(points(run(schedule, costs).explanation.memory[1]),
            (Points{{0, 7000}, {1.5, 7100}, {4.5, 7020}, {5, 7000}}));
  // Recomputation takes almost no time. The activations exist only from the backward on; the output alone is in flight
  // until 1.5.
  costs.recompute = {1e-300, 1e-300};
  EXPECT_EQ(points(run(schedule, costs).explanation.memory[0]),
            (Points{{0, 7010}, {1, 7030}, {1.5, 7010}, {5, 7120}, {7, 7000}}));
}

TEST(ExplainTest, BuffersExistBeforeAndAfterTheirMessages) {
  const Schedule schedule = find_generator("gpipe").generate({2, 2});
  CostModel costs = CostModel::uniform(schedule, testing::costs(1, 2));
  costs.memory = {{0, 0, 0, 100, 0}, {0, 0, 0, 100, 10}};
  using Points = std::vector<std::pair<double, double>>;
  // Worker 1 runs 1F0 1-2, 1F1 2-3, 1B0 3-5, 1B1 5-7; worker 0 runs 0B0 5-7, 0B1 7-9.
  EXPECT_EQ(points(run(schedule, costs).explanation.memory[1]), (Points{{0, 0}, {1, 100}, {2, 200}, {5, 100}, {7, 0}}));
  costs.buffers = {.receives_ahead = 1, .sends_behind = 1};
  // The buffer for 0F0 exists from the start, and for 0F1 from 1F0 on. The gradient of 1B0 is kept until the gradient
  // of 1B1 is made.
  EXPECT_EQ(points(run(schedule, costs).explanation.memory[1]),
            (Points{{0, 10}, {1, 110}, {2, 200}, {5, 110}, {7, 0}}));
}

TEST(ExplainTest, InputsOfTheWeightGradientAreKeptAfterTheInputGradient) {
  const Schedule schedule = find_generator("zb-h1").generate({1, 1});  // F 0-1, I 1-3, W 3-5
  CostModel costs = CostModel::uniform(schedule, testing::costs(1, 4));
  costs.memory = {{1000, 2000, 4000, 100, 0, 30}};
  using Points = std::vector<std::pair<double, double>>;
  EXPECT_EQ(points(run(schedule, costs).explanation.memory[0]), (Points{{0, 7100}, {3, 7030}, {5, 7000}}));
  costs.memory.front().deferred.reset();
  EXPECT_EQ(points(run(schedule, costs).explanation.memory[0]), (Points{{0, 7100}, {5, 7000}}));
}

TEST(ExplainTest, MeasuredOpsThatStartLateWaitForLatency) {
  const Schedule schedule = find_generator("1f1b").generate({2, 1});
  Timeline timeline = simulate(schedule, CostModel::uniform(schedule, testing::costs(1, 2)));
  // 0F0 runs 0-1, is sent at 1.1 and arrives at 1.5; 1F0 runs only 1.75-2.75. 1B0 runs 2.75-4.75, its gradient arrives
  // at once, 0B0 runs 5-7.
  timeline.workers[0].ops = {{0, 1}, {5, 7}};
  timeline.workers[1].ops = {{1.75, 2.75}, {2.75, 4.75}};
  timeline.workers[0].updates = {{2, 7, 8}};
  timeline.workers[1].updates = {{2, 7, 8}};
  timeline.ops_end = 7;
  timeline.makespan = 8;
  const Explanation measured =
      explain_measured(schedule, timeline, {{{0, 0}, {1, 0}, 1.1, 1.5}, {{1, 1}, {0, 1}, 4.75, 4.75}});
  const auto idle = idle_by_cause(measured.bubbles);
  using Idle = std::array<double, kIdleCauses>;
  EXPECT_EQ(idle, (Idle{1, 3.75, 0.25 + 0.75, 2, 2.25})) << "warm-up, dependency, latency, sync, imbalance";
  EXPECT_EQ(measured.messages.size(), 2U);
}

/// Random whole costs, with or without links and all-reduces.
CostModel any_costs(const Schedule& schedule, std::uint64_t seed) {
  const CounterRandom random(seed, "costs");
  std::uint64_t drawn = 0;
  const auto draw = [&](std::uint64_t range) { return static_cast<double>(random.below(drawn++, range)); };
  const auto list = [&](std::int64_t count, std::uint64_t range) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < count; ++i) values.push_back(draw(range));
    return values;
  };
  CostModel costs;
  for (std::int64_t s = 0; s < schedule.stages; ++s) costs.stages.push_back({1 + draw(9), 1 + draw(9)});
  costs.latency = draw(3);
  if (draw(2) > 0) costs.links = LinkCosts{draw(2), 1, list(schedule.stages - 1, 5)};
  if (draw(2) > 0) costs.all_reduce = AllReduceCosts{.seconds = list(schedule.stages, 20)};
  if (draw(2) > 0) costs.optimizer = list(schedule.stages, 4);
  if (draw(2) > 0) costs.recompute = list(schedule.stages, 4);
  costs.all_reduce_placement = static_cast<AllReducePlacement>(random.below(drawn++, 3));
  costs.blocking_sends = draw(3) > 1;
  return costs;
}

/// Expects that bubbles and ops, in order, cover [0, makespan] without gap or overlap.
void expect_tiled(const Explained& run, std::size_t worker) {
  std::vector<std::pair<double, double>> spans;
  for (const TimedOp& op : run.timeline.workers[worker].ops) spans.emplace_back(op.start, op.end);
  for (const Bubble& bubble : run.explanation.bubbles[worker]) spans.emplace_back(bubble.start, bubble.end);
  std::sort(spans.begin(), spans.end());
  double at = 0;
  for (const auto& [start, end] : spans) {
    EXPECT_EQ(start, at);
    at = end;
  }
  EXPECT_EQ(at, run.timeline.makespan);
}

TEST(ExplainTest, CausesAddUpToTheIdleTime) {
  std::uint64_t seed = 0;
  testing::for_every_schedule(5, [&](const Schedule& schedule) {
    const Explained any = run(schedule, any_costs(schedule, ++seed));
    double idle = 0;
    for (std::size_t w = 0; w < any.timeline.workers.size(); ++w) {
      expect_tiled(any, w);
      idle += any.timeline.workers[w].idle;
    }
    const auto causes = idle_by_cause(any.explanation.bubbles);
    EXPECT_EQ(std::accumulate(causes.begin(), causes.end(), 0.0), idle);
  });
}

TEST(ExplainTest, WithoutCommunicationTheCriticalPathHasNoWaits) {
  std::uint64_t seed = 1000;
  for (const PipelineShape& shape : testing::small_shapes("chimera", 6)) {
    const Schedule schedule = find_generator("chimera").generate(shape);
    CostModel costs = any_costs(schedule, ++seed);
    costs.links.reset();
    costs.all_reduce.reset();
    costs.optimizer.clear();
    costs.recompute.clear();  // a part of it overlaps with the wait before it
    costs.latency = 0;
    const Explained any = run(schedule, costs);
    double at = 0;
    for (const Place& place : any.explanation.critical_path) {
      const TimedOp& op = any.timeline.workers[place.worker].ops[place.position];
      EXPECT_EQ(op.start, at);
      at = op.end;
    }
    EXPECT_EQ(at, any.timeline.makespan);
  }
}

TEST(ExplainTest, MemoryPeaksAtThePeakOfStageUnits) {
  testing::for_every_schedule(4, [](const Schedule& schedule) {
    const Explained any = run(schedule, CostModel::uniform(schedule, testing::costs(1, 2)));
    for (std::size_t w = 0; w < any.timeline.workers.size(); ++w) {
      double peak = 0;
      for (const MemoryPoint& point : any.explanation.memory[w]) peak = std::max(peak, point.amount);
      EXPECT_NEAR(peak, any.timeline.workers[w].peak_stage_units, 1e-9);
    }
  });
}

}  // namespace
}  // namespace chimera
