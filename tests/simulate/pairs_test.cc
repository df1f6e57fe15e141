
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "passes/unroll.h"
#include "schedule/dependencies.h"
#include "schedule/schedule_csv.h"
#include "simulate/cost_table.h"
#include "simulate/explain.h"
#include "simulate/simulate.h"
#include "support/schedules.h"

namespace chimera {
namespace {

constexpr double kRounding = 1e-9;

Schedule read_cells(const std::string& cells) { return schedule_from_csv(cells, "text").schedule; }

CostModel with_pair(const Schedule& schedule, double pair, double latency = 0) {
  CostModel costs = CostModel::uniform(schedule, {.forward = 1, .backward = 2}, latency);
  costs.pair = pair;
  return costs;
}

/// Schedules with pairs, with whole and split backwards. Times range from whole numbers to unequal times with messages.
template <class Visit>
void for_each_case(Visit&& visit) {
  for (const char* name : {"dualpipe", "dualpipev"}) {
    for (const std::int64_t d : {2, 4, 6}) {
      for (const std::int64_t n : {2 * d, 2 * d + 2}) {
        const Schedule schedule = find_generator(name).generate({.stages = d, .micro_batches = n});
        for (const double pair : {0.0, 0.7, 0.9, 1.0, 1.2}) {
          for (const double latency : {0.0, 0.25}) {
            const StageCosts share{.forward = 1, .backward = 2.2, .input_gradient = 1.3, .weight_gradient = 0.9};
            CostModel costs = CostModel::uniform(schedule, share, latency);
            costs.pair = pair;
            visit(schedule, costs);
          }
        }
      }
    }
  }
}

TEST(PairsTest, BothOpsTakeTheTimeOfThePair) {
  const Schedule schedule = read_cells("0F0,0F1,(0F2;0B0)OVERLAP_F_B,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n");
  const Timeline timeline = simulate(schedule, with_pair(schedule, 0.8));
  const auto& ops = timeline.workers[0].ops;
  EXPECT_DOUBLE_EQ(ops[2].start, 4);  // 1B0 ends
  EXPECT_DOUBLE_EQ(ops[2].end, 6.4);  // 0.8 of 1 + 2
  EXPECT_EQ(ops[3].start, ops[2].start);
  EXPECT_EQ(ops[3].end, ops[2].end);
  EXPECT_DOUBLE_EQ(timeline.workers[0].busy, 2 + 2.4 + 4);
  EXPECT_EQ(timeline.workers[0].peak_in_flight, 3);
}

TEST(PairsTest, APairTakesNoLessThanTheLongerOp) {
  const Schedule schedule = read_cells("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n");
  EXPECT_DOUBLE_EQ(simulate(schedule, with_pair(schedule, 0.1)).makespan, 1 + 2 + 2);
  EXPECT_DOUBLE_EQ(simulate(schedule, with_pair(schedule, 2)).makespan, 1 + 6 + 2);
}

TEST(PairsTest, RecomputationComesFirstAndOverlapsWithNothing) {
  const Schedule schedule = read_cells("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n");
  CostModel costs = with_pair(schedule, 0.5);
  costs.recompute = {1};
  EXPECT_DOUBLE_EQ(simulate(schedule, costs).makespan, 1 + (1 + 2) + (1 + 2));
}

TEST(PairsTest, PairsWithoutATimeAreTwoOps) {
  for_each_case([](const Schedule& schedule, CostModel costs) {
    costs.pair.reset();
    const Timeline with = simulate(schedule, costs);
    const Timeline without = simulate(without_pairs(schedule), costs);
    EXPECT_EQ(with.makespan, without.makespan);
    EXPECT_EQ(with.lower_bound, without.lower_bound);
  });
}

TEST(PairsTest, EveryOpStartsWhenItsPairHasAllInputs) {
  for_each_case([](const Schedule& schedule, const CostModel& costs) {
    const Timeline timeline = simulate(schedule, costs);
    const CostTable table(schedule, costs);
    const OpTable ops(schedule);
    const auto timed = [&](OpIndex op) { return timeline.workers[ops.worker(op)].ops[op - ops.first(ops.worker(op))]; };
    for (OpIndex first = 0; first < ops.size();
         first += static_cast<OpIndex>(ops.at_once(first, table.pairs()).size())) {
      const auto pair = ops.at_once(first, table.pairs());
      double ready = first == ops.first(ops.worker(first)) ? 0 : timed(first - 1).end;
      for (const Op& op : pair) {
        for (const OpIndex input : ops.inputs(op)) {
          if (input == kNoOp) continue;
          ready = std::max(ready, timed(input).end + (ops.worker(input) == ops.worker(first) ? 0 : costs.latency));
        }
      }
      for (OpIndex op = first; op < first + pair.size(); ++op) {
        EXPECT_DOUBLE_EQ(timed(op).start, ready);
        EXPECT_DOUBLE_EQ(timed(op).end, ready + table.duration(pair));
      }
    }
  });
}

TEST(PairsTest, BubblesTileTheIdleTimeAndTheCriticalPathTheMakespan) {
  for_each_case([](const Schedule& schedule, const CostModel& costs) {
    const Timeline timeline = simulate(schedule, costs);
    const Explanation explanation = explain(schedule, costs, timeline);
    for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
      double idle = 0;
      for (const Bubble& bubble : explanation.bubbles[w]) idle += bubble.end - bubble.start;
      EXPECT_NEAR(idle, timeline.workers[w].idle, kRounding);
    }
    const auto time = [&](const Place& place) { return timeline.workers[place.worker].ops[place.position]; };
    const auto& path = explanation.critical_path;
    EXPECT_EQ(time(path.front()).start, 0);
    EXPECT_EQ(time(path.back()).end, timeline.makespan);
    for (std::size_t i = 1; i < path.size(); ++i) {
      const double gap = time(path[i]).start - time(path[i - 1]).end;
      EXPECT_NEAR(gap, path[i].worker == path[i - 1].worker ? 0 : costs.latency, kRounding);
    }
  });
}

TEST(PairsTest, NoMakespanIsBelowTheBound) {
  for_each_case([](const Schedule& schedule, const CostModel& costs) {
    const Timeline timeline = simulate(schedule, costs);
    EXPECT_LE(timeline.lower_bound, timeline.makespan);
    const double work = static_cast<double>(schedule.micro_batches) * (1 + 2.2);
    if (*costs.pair >= 1)
      EXPECT_GE(timeline.lower_bound, work * (1 - kRounding)) << "pairs that save nothing leave all work to do";
    EXPECT_GE(timeline.lower_bound, work * std::min(1.0, *costs.pair) * (1 - kRounding));
  });
}

TEST(PairsTest, OnEnoughCoresTheTwoSimulatorsAgree) {
  for_each_case([](const Schedule& schedule, const CostModel& costs) {
    const SharedCores free{.cores = std::numeric_limits<double>::infinity()};
    EXPECT_NEAR(simulate(schedule, costs, {.cores = free}).makespan, simulate(schedule, costs).makespan, kRounding);
  });
}

TEST(PairsTest, OnOneCorePairsSaveNothing) {
  const Schedule schedule = read_cells("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n");
  CostModel costs = with_pair(schedule, 0.7);
  EXPECT_DOUBLE_EQ(simulate(schedule, costs, {.cores = {.cores = 1}}).makespan, 6);
  EXPECT_DOUBLE_EQ(simulate(schedule, costs, {.cores = {.cores = 2}}).makespan, 1 + 2.1 + 2);
}

TEST(PairsTest, BlockingSendsOfAPairAreWaitedForTogether) {
  const Schedule schedule = find_generator("dualpipe").generate({.stages = 4, .micro_batches = 8});
  CostModel costs = with_pair(schedule, 0.8, 0.5);
  costs.blocking_sends = true;
  const Timeline timeline = simulate(schedule, costs);
  EXPECT_LE(timeline.lower_bound, timeline.makespan);
  const auto& ops = schedule.workers[0];
  const auto first = static_cast<std::size_t>(std::ranges::find_if(ops, &Op::paired) - ops.begin());
  ASSERT_EQ(to_text(ops[first]), "0F3");  // both outputs go to worker 1
  EXPECT_GE(timeline.workers[0].ops[first + 2].start, timeline.workers[0].ops[first].end + 0.5);
}

TEST(PairsTest, ConsecutiveStepsKeepTheirPairs) {
  const Schedule schedule = find_generator("dualpipe").generate({.stages = 4, .micro_batches = 8});
  const Timeline one = simulate(schedule, with_pair(schedule, 0.8));
  const Schedule three = unroll(schedule, 3);
  EXPECT_NEAR(simulate(three, with_pair(three, 0.8), {.steps = 3}).makespan, 3 * one.makespan, kRounding);
}

}  // namespace
}  // namespace chimera
