#include "simulate/cost_table.h"
#include "simulate/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "core/error.h"
#include "passes/unroll.h"
#include "support/schedules.h"

namespace chimera {
namespace {

/// All costs of a step, different on every stage.
CostModel rich_costs(const Schedule& schedule) {
  CostModel costs;
  const auto stages = static_cast<std::size_t>(schedule.stages);
  for (std::size_t s = 0; s < stages; ++s) {
    const auto more = static_cast<double>(s % 3);
    costs.stages.push_back({1 + 0.1 * more, 2 + 0.3 * more, 1.1, 0.9 + 0.2 * more});
    costs.optimizer.push_back(0.25 + 0.1 * more);
    costs.recompute.push_back(s % 2 == 0 ? 0.3 : 0);
  }
  costs.latency = 0.05;
  costs.links = LinkCosts{.alpha = 0.01,
                          .beta = 0.02,
                          .bytes = std::vector<double>(stages - 1, 3.0),
                          .copies = std::vector<double>(stages - 1, 0.07)};
  return costs;
}

AllReduceCosts sums(const Schedule& schedule) {
  AllReduceCosts costs{.alpha = 0.1, .beta = 0.3};
  for (std::int64_t s = 0; s < schedule.stages; ++s) costs.bytes.push_back(1 + 0.5 * static_cast<double>(s % 2));
  costs.tied = !schedule.updates;
  if (costs.tied) costs.bytes.push_back(0.7);
  return costs;
}

using Span = std::tuple<double, double>;

void expect_same(const Timeline& shared, const Timeline& alone) {
  EXPECT_EQ(shared.makespan, alone.makespan);
  EXPECT_EQ(shared.step_ends, alone.step_ends);
  EXPECT_EQ(shared.lower_bound, alone.lower_bound);
  for (std::size_t w = 0; w < alone.workers.size(); ++w) {
    const WorkerTimeline& a = shared.workers[w];
    const WorkerTimeline& b = alone.workers[w];
    const auto same = [](const auto& x, const auto& y) { return Span(x.start, x.end) == Span(y.start, y.end); };
    EXPECT_TRUE(std::equal(a.ops.begin(), a.ops.end(), b.ops.begin(), b.ops.end(), same)) << "worker " << w;
    EXPECT_TRUE(std::equal(a.updates.begin(), a.updates.end(), b.updates.begin(), b.updates.end(), same));
    EXPECT_TRUE(std::equal(a.all_reduces.begin(), a.all_reduces.end(), b.all_reduces.begin(), b.all_reduces.end(),
                           [&](const TimedAllReduce& x, const TimedAllReduce& y) {
                             return same(x, y) && x.group == y.group && x.launched_by == y.launched_by;
                           }))
        << "worker " << w;
  }
}

/// Calls visit(schedule) for a few shapes of every generator up to D = 6.
template <class Visit>
void for_some_schedules(const Visit& visit) {
  for (const Generator& generator : generators()) {
    const auto all = testing::small_shapes(generator.name, 6);
    for (std::size_t i = 0; i < all.size(); i += 1 + all.size() / 20) {
      SCOPED_TRACE(testing::describe(generator.name, all[i]));
      visit(generator.generate(all[i]));
    }
  }
}

/// Compares the schedule on the cores with the plain simulation, without and with blocking sends.
void expect_plain(const Schedule& schedule, const SharedCores& cores) {
  CostModel costs = rich_costs(schedule);
  for (const bool blocking : {false, true}) {
    costs.blocking_sends = blocking;
    expect_same(simulate(schedule, costs, {.cores = cores}), simulate(schedule, costs));
  }
}

/// Any number of cores, so that only the contention slows workers down.
SharedCores without_end(const Contention& contention, const NodePlacement& nodes = {}) {
  return {.cores = std::numeric_limits<double>::infinity(), .contention = contention, .nodes = nodes};
}

double cores_for_all(const Schedule& schedule) { return 2 * static_cast<double>(schedule.workers.size()); }

TEST(SharedCoresTest, EnoughCoresGiveThePlainSimulation) {
  for_some_schedules([](const Schedule& schedule) {
    expect_plain(schedule, {.cores = static_cast<double>(schedule.workers.size())});
  });
}

TEST(SharedCoresTest, EnoughCoresForOverlappedSumsGiveThePlainSimulation) {
  for_some_schedules([](const Schedule& schedule) {
    CostModel costs = rich_costs(schedule);
    costs.all_reduce = sums(schedule);
    costs.all_reduce->data_parallel = 2;
    for (const auto placement : {AllReducePlacement::Post, AllReducePlacement::Eager, AllReducePlacement::EagerOpt}) {
      costs.all_reduce_placement = placement;
      expect_same(simulate(schedule, costs, {.cores = {.cores = cores_for_all(schedule)}}), simulate(schedule, costs));
    }
  });
}

TEST(SharedCoresTest, SeveralStepsMatchThePlainSimulation) {
  for (const char* name : {"chimera", "1f1b", "zb-v", "pipedream", "pipedream-2bw"}) {
    SCOPED_TRACE(name);
    const Schedule schedule = unroll(find_generator(name).generate({4, 4}), 3);
    CostModel costs = rich_costs(schedule);
    costs.all_reduce_placement = AllReducePlacement::Eager;
    if (!schedule.updates) costs.all_reduce = sums(schedule);
    expect_same(simulate(schedule, costs, {.steps = 3, .cores = {.cores = cores_for_all(schedule)}}),
                simulate(schedule, costs, {.steps = 3}));
  }
}

// With contention, messages wait in separate queues.
TEST(ContentionTest, WithoutSumsOpsMatchThePlainSimulation) {
  for_some_schedules(
      [](const Schedule& schedule) { expect_plain(schedule, without_end({.ops_by_sums = 1, .sums_by_ops = 1})); });
}

/// A step of gpipe with D = 2, N = 1, each stage held by two groups: F = 1, B = 2, a message takes 1, an all-reduce 3.
CostModel costs_of_two_groups(const Schedule& schedule) {
  CostModel costs = CostModel::uniform(schedule, testing::costs(1, 2));
  costs.links = LinkCosts{.beta = 1, .bytes = {1}};
  costs.all_reduce = AllReduceCosts{.seconds = {3, 3}, .data_parallel = 2};
  return costs;
}

TEST(ContentionTest, AMessageAndASumDivideTheInterface) {
  const Schedule schedule = find_generator("gpipe").generate({.stages = 2, .micro_batches = 1});
  const CostModel costs = costs_of_two_groups(schedule);
  const Timeline timeline = simulate(schedule, costs, {.cores = without_end({.transfers = 1})});
  // Worker 1 ends its backward at 5. Its gradient takes until 7 beside the all-reduce, which has done 1 of 3 by then.
  EXPECT_EQ(timeline.workers[0].ops[1].start, 7);
  EXPECT_EQ(timeline.workers[1].all_reduces[0].start, 5);
  EXPECT_EQ(timeline.workers[1].all_reduces[0].end, 9);
  EXPECT_EQ(timeline.makespan, 12);
  EXPECT_EQ(simulate(schedule, costs).makespan, 11);
}

TEST(ContentionTest, MessagesOfBothDirectionsPassUnhindered) {
  const Schedule schedule = find_generator("chimera").generate({.stages = 2, .micro_batches = 2});
  CostModel costs = costs_of_two_groups(schedule);
  costs.all_reduce.reset();
  expect_same(simulate(schedule, costs, {.cores = without_end({.transfers = 1})}), simulate(schedule, costs));
}

TEST(ContentionTest, MessagesOfAllGroupsDivideTheInterfaceOfTheirNode) {
  const Schedule schedule = find_generator("gpipe").generate({.stages = 2, .micro_batches = 1});
  const CostModel costs = costs_of_two_groups(schedule);
  // Replicas of a stage are on one node: two messages leave it at once, and all-reduces stay on it.
  const Timeline timeline =
      simulate(schedule, costs,
               {.cores = without_end({.node_transfers = 1},
                                     {.node_of = {0, 1}, .copies = {2, 2}, .sums_leave = {false, false}})});
  EXPECT_EQ(timeline.workers[1].ops[0].start, 3);
  EXPECT_EQ(timeline.workers[0].ops[1].start, 8);
  EXPECT_EQ(timeline.makespan, 13);
}

/// As above on nodes of one core: one of the two replicas ends first, and its message leaves alone.
TEST(ContentionTest, CopiesThatShareACoreSendInTurn) {
  const Schedule schedule = find_generator("gpipe").generate({.stages = 2, .micro_batches = 1});
  const CostModel costs = costs_of_two_groups(schedule);
  const Timeline timeline =
      simulate(schedule, costs,
               {.cores = {.cores = 1,
                          .all_reduce_share = 0,
                          .contention = {.node_transfers = 1},
                          .nodes = {.node_of = {0, 1}, .copies = {2, 2}, .sums_leave = {false, false}}}});
  // Two forwards take 2, a message 1, two backwards 4.
  EXPECT_EQ(timeline.workers[1].ops[0].start, 3);
  EXPECT_EQ(timeline.workers[0].ops[1].start, 3 + 2 + 4 + 1);
}

/// Two stages on different nodes, with two replicas of each per node. The node's burst is shared by both replicas.
TEST(ContentionTest, CopiesOnANodeShareItsBurst) {
  const Schedule schedule = find_generator("gpipe").generate({.stages = 2, .micro_batches = 1});
  CostModel costs = costs_of_two_groups(schedule);
  costs.links->bursts = {0.5};
  SharedCores shared =
      without_end({.node_transfers = 1}, {.node_of = {0, 1}, .copies = {2, 2}, .sums_leave = {false, false}});
  EXPECT_EQ(simulate(schedule, costs, {.cores = shared}).workers[1].ops[0].start, 1 + 2 * (1 - 0.25));
  shared.nodes.copies = {1, 1};
  EXPECT_EQ(simulate(schedule, costs, {.cores = shared}).workers[1].ops[0].start, 1 + 1 - 0.5);
}

CostModel costs_with_long_sums(const Schedule& schedule) {
  CostModel costs = costs_of_two_groups(schedule);
  costs.all_reduce->seconds = {6, 6};
  return costs;
}

SharedCores both_on_one_of_several_nodes() {
  return without_end({.node_transfers = 1}, {.node_of = {0, 0}, .copies = {1, 1}, .sums_leave = {true, true}});
}

TEST(ContentionTest, SumsOfTwoWorkersDivideTheInterfaceOfTheirNode) {
  const Schedule schedule = find_generator("gpipe").generate({.stages = 2, .micro_batches = 1});
  const CostModel costs = costs_with_long_sums(schedule);
  SharedCores shared = both_on_one_of_several_nodes();
  const Timeline timeline = simulate(schedule, costs, {.cores = shared});
  EXPECT_EQ(timeline.workers[1].all_reduces[0].start, 5);
  EXPECT_EQ(timeline.workers[1].all_reduces[0].end, 14) << "the other one begins at 8";
  EXPECT_EQ(timeline.workers[0].all_reduces[0].end, 17);
  shared.nodes.sums_leave = {false, false};
  EXPECT_EQ(simulate(schedule, costs, {.cores = shared}).makespan, 14) << "on links of the node";
}

TEST(ContentionTest, SumsOfAsynchronousUpdatesDivideTheInterfaceOfTheirNode) {
  const Schedule schedule = find_generator("pipedream").generate({.stages = 2, .micro_batches = 1});
  const CostModel costs = costs_with_long_sums(schedule);
  SharedCores shared = both_on_one_of_several_nodes();
  const Timeline timeline = simulate(schedule, costs, {.cores = shared});
  EXPECT_EQ(timeline.workers[1].updates[0].end, 14) << "as those of a step do";
  EXPECT_EQ(timeline.workers[0].updates[0].end, 17);
  shared.nodes.sums_leave = {false, false};
  EXPECT_EQ(simulate(schedule, costs, {.cores = shared}).makespan, 14) << "on links of the node";
}

TEST(ContentionTest, ANodeTakesPartInASumOnce) {
  const Schedule schedule = find_generator("chimera").generate({.stages = 2, .micro_batches = 2});
  const CostModel costs = costs_of_two_groups(schedule);  // four replicas of each stage, two per node
  expect_same(simulate(schedule, costs,
                       {.cores = without_end({.node_transfers = 1},
                                             {.node_of = {0, 0}, .copies = {1, 1}, .sums_leave = {true, true}})}),
              simulate(schedule, costs));
}

TEST(SharedCoresTest, SwitchingCostsOnlyWhileOpsOutnumberCores) {
  // Worker 0: 0F0 0F1 0B0 0B1; worker 1: 1F0 1F1 1B0 1B1. One core: 0F1 and 1F0 overlap, then 1B1 and 0B0.
  const Schedule schedule = find_generator("gpipe").generate({.stages = 2, .micro_batches = 2});
  const CostModel costs = CostModel::uniform(schedule, testing::costs(1, 2));
  EXPECT_DOUBLE_EQ(simulate(schedule, costs, {.cores = {.cores = 1}}).makespan, 12);
  EXPECT_DOUBLE_EQ(simulate(schedule, costs, {.cores = {.cores = 1, .switching = 0.5}}).makespan, 12 + 0.5 * (2 + 4));
  EXPECT_DOUBLE_EQ(simulate(schedule, costs, {.cores = {.cores = 2, .switching = 0.5}}).makespan, 9);
  EXPECT_THROW((void)simulate(schedule, costs, {.cores = {.switching = -1}}), ConfigError);
}

TEST(ContentionTest, AnOpAndASumSlowEachOtherDown) {
  // One worker with two stages: 0F0 1F0 1B0 0B0. The all-reduce of stage 1 runs beside 0B0.
  Schedule schedule = find_generator("looped-bfs").generate({.stages = 1, .micro_batches = 1, .chunks = 2});
  CostModel costs = CostModel::uniform(schedule, testing::costs(2, 4));  // costs of the worker: F = 1, B = 2 per stage
  costs.all_reduce = AllReduceCosts{.seconds = {3, 3}, .data_parallel = 2};
  costs.all_reduce_placement = AllReducePlacement::Eager;
  const Timeline timeline = simulate(schedule, costs, {.cores = without_end({.ops_by_sums = 1, .sums_by_ops = 0.5})});
  const WorkerTimeline& worker = timeline.workers[0];
  EXPECT_EQ(worker.ops[3].start, 4);
  EXPECT_DOUBLE_EQ(worker.ops[3].end, 8) << "twice as long, as the sum runs on";
  EXPECT_DOUBLE_EQ(worker.all_reduces[0].end, 8 + (3 - 4 / 1.5)) << "at 1 / 1.5 of its speed until 8";
  EXPECT_DOUBLE_EQ(timeline.makespan, 8 + (3 - 4 / 1.5) + 3);
}

/// Receives are posted one op before their turn: 0F1 and 0B0 of worker 0 wait for the input of the op after them.
TEST(ContentionTest, PostedReceivesSlowTheOpBeforeTheirTurn) {
  // Worker 0: 0F0 0F1 0B0 0B1; worker 1: 1F0 1B0 1F1 1B1. Messages take no time.
  const Schedule schedule = find_generator("1f1b").generate({.stages = 2, .micro_batches = 2});
  const CostModel costs = CostModel::uniform(schedule, testing::costs(1, 2));
  const Timeline timeline = simulate(schedule, costs, {.cores = without_end({.ops_by_receives = 0.5})});
  const auto ends = [&](std::size_t worker) {
    std::vector<double> ends;
    for (const TimedOp& op : timeline.workers[worker].ops) ends.push_back(op.end);
    return ends;
  };
  const auto near = [](std::vector<double> times) { return ::testing::Pointwise(::testing::DoubleNear(1e-12), times); };
  const double gradient = 4.5 - 1.0 / 3;  // 1B0 starts at 2 and waits for 0F1 until 2.5
  EXPECT_THAT(ends(1), near({2, gradient, gradient + 1, gradient + 3}));
  EXPECT_THAT(ends(0), near({1, 2.5, gradient + 3, gradient + 5})) << "0B0 takes 3, as 1B1 ends with it";
}

TEST(ContentionTest, OpsAreFasterWhileOtherCoresIdle) {
  // Worker 0: 0F0 0F1 0B0 0B1; worker 1: 1F0 1B0 1F1 1B1. Messages take no time.
  const Schedule schedule = find_generator("1f1b").generate({.stages = 2, .micro_batches = 2});
  const CostModel costs = CostModel::uniform(schedule, testing::costs(1, 2));
  const Contention half{.idle_gain = 0.5};  // an op alone on one of two cores takes 3/4 of its time
  const Timeline timeline = simulate(schedule, costs, {.cores = {.cores = 2, .contention = half}});
  const auto end = [&](std::size_t worker, std::size_t op) { return timeline.workers[worker].ops[op].end; };
  EXPECT_DOUBLE_EQ(end(0, 0), 0.75);
  EXPECT_DOUBLE_EQ(end(0, 1), 1.75) << "beside 1F0";
  EXPECT_DOUBLE_EQ(end(1, 1), 3.25) << "alone";
  EXPECT_DOUBLE_EQ(end(0, 2), 5.25) << "beside 1F1 and 1B1";
  EXPECT_DOUBLE_EQ(end(1, 3), 6) << "half of it alone";
  EXPECT_DOUBLE_EQ(timeline.makespan, 7.5);
  EXPECT_DOUBLE_EQ(timeline.lower_bound, 0.75 * 9) << "all of the flow's 9 while the other core idles";
  EXPECT_DOUBLE_EQ(simulate(schedule, costs, {.cores = {.cores = 1, .contention = half}}).makespan, 12) << "never idle";
  EXPECT_EQ(simulate(schedule, costs, {.cores = without_end(half)}).makespan, simulate(schedule, costs).makespan)
      << "unknown cores";
}

TEST(ContentionTest, TheBoundOfAnOrderHoldsForAFasterOrderOnIdleCores) {
  const Schedule fast = find_generator("gpipe").generate({.stages = 3, .micro_batches = 4});
  Schedule slow = fast;  // one micro-batch after the other
  for (auto& ops : slow.workers) std::ranges::stable_sort(ops, {}, &Op::micro_batch);
  const auto timed = [](const Schedule& schedule) {
    const SharedCores cores{.cores = 3, .contention = {.idle_gain = 0.5}};
    return simulate(schedule, CostModel::uniform(schedule, testing::costs(1, 2)), {.cores = cores});
  };
  EXPECT_LT(timed(fast).makespan, timed(slow).makespan);
  EXPECT_LE(timed(slow).lower_bound, timed(fast).makespan);
}

TEST(ContentionTest, ASumIsFasterWhileTheNextSumOverlaps) {
  const Schedule schedule = find_generator("chimera").generate({.stages = 2, .micro_batches = 2});
  CostModel costs = CostModel::uniform(schedule, testing::costs(1, 2));
  costs.all_reduce = AllReduceCosts{.seconds = {4, 4}};
  costs.all_reduce_placement = AllReducePlacement::Post;
  const Timeline timeline = simulate(schedule, costs, {.cores = without_end({.sums_overlap = 0.75})});
  const auto& sums = timeline.workers[0].all_reduces;
  ASSERT_EQ(sums.size(), 2U);
  EXPECT_DOUBLE_EQ(sums[0].end - sums[0].start, 1) << "of 4";
  EXPECT_DOUBLE_EQ(sums[1].end - sums[1].start, 4) << "nothing is under way beside it";
  EXPECT_EQ(simulate(schedule, costs).makespan - timeline.makespan, 3);
}

TEST(ContentionTest, BadSharesAreRefused) {
  const Schedule schedule = find_generator("gpipe").generate({.stages = 2, .micro_batches = 1});
  const CostModel costs = costs_of_two_groups(schedule);
  for (const double share : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    const SharedCores shared{.cores = 1, .contention = {.transfers = share}};
    EXPECT_THROW((void)simulate(schedule, costs, {.cores = shared}), ConfigError) << share;
  }
  for (const double overlap : {-0.1, 1.0, std::nan("")}) {
    const SharedCores shared{.cores = 1, .contention = {.sums_overlap = overlap}};
    EXPECT_THROW((void)simulate(schedule, costs, {.cores = shared}), ConfigError) << overlap;
  }
}

double work_of(const Schedule& schedule, const CostModel& costs) {
  const CostTable table(schedule, costs);
  double work = 0;
  for (const auto& ops : schedule.workers) {
    for (const Op& op : ops) work += table.duration(op);
  }
  if (schedule.updates) return work;
  for (const double update : table.updates(schedule)) work += update;
  return work;
}

TEST(SharedCoresTest, OneCoreTakesTheSumOfAllWork) {
  for_some_schedules([](const Schedule& schedule) {
    CostModel costs = rich_costs(schedule);
    costs.links.reset();
    costs.latency = 0;
    if (schedule.updates) costs.optimizer.clear();
    const double work = work_of(schedule, costs);
    EXPECT_NEAR(simulate(schedule, costs, {.cores = {.cores = 1}}).makespan, work, 1e-9 * work);
  });
}

TEST(SharedCoresTest, TwoWorkersOnOneCore) {
  // Worker 0: 0F0 0F1 0B0 0B1, worker 1: 1F0 1F1 1B0 1B1; F = 1, B = 2.
  const Schedule schedule = find_generator("gpipe").generate({2, 2});
  const CostModel costs = CostModel::uniform(schedule, testing::costs(1, 2));
  const Timeline timeline = simulate(schedule, costs, {.cores = {.cores = 1}});
  const auto& [first, second] = std::tie(timeline.workers[0].ops, timeline.workers[1].ops);
  EXPECT_EQ(first[0].end, 1);  // alone
  EXPECT_EQ(first[1].end, 3);  // 0F1 and 1F0 at half speed
  EXPECT_EQ(second[0].end, 3);
  EXPECT_EQ(second[1].end, 4);  // 1F1 alone
  EXPECT_EQ(second[2].end, 6);  // 1B0 alone
  EXPECT_EQ(first[2].end, 10);  // 0B0 beside 1B1
  EXPECT_EQ(second[3].end, 10);
  EXPECT_EQ(timeline.makespan, 12);
  EXPECT_EQ(timeline.lower_bound, 12);
  EXPECT_EQ(timeline.workers[0].busy, 1 + 2 + 4 + 2);
}

/// Two workers that hold both stages of two replicas and are idle during all-reduces.
struct TwoCopies {
  Schedule schedule = find_generator("chimera").generate({2, 2});
  CostModel costs = CostModel::uniform(schedule, testing::costs(1, 2));
  TwoCopies() {
    costs.all_reduce = AllReduceCosts{.seconds = {1, 1}};
    costs.all_reduce_placement = AllReducePlacement::Post;
  }
};

TEST(SharedCoresTest, EachNodeHasItsOwnCores) {
  const Schedule schedule = find_generator("gpipe").generate({.stages = 2, .micro_batches = 1});
  const CostModel costs = CostModel::uniform(schedule, testing::costs(1, 2));
  const auto makespan = [&](double cores, const NodePlacement& nodes) {
    return simulate(schedule, costs, {.cores = {.cores = cores, .nodes = nodes}}).makespan;
  };
  // One op runs at a time. With two groups whose replicas of a stage share a node, the replicas take turns on the
  // node's core.
  EXPECT_EQ(makespan(1, {.node_of = {0, 1}, .copies = {1, 1}, .sums_leave = {true, true}}), 6);
  EXPECT_EQ(makespan(1, {.node_of = {0, 1}, .copies = {2, 2}, .sums_leave = {false, false}}), 12);
  EXPECT_EQ(makespan(2, {.node_of = {0, 1}, .copies = {2, 2}, .sums_leave = {false, false}}), 6);
}

TEST(SharedCoresTest, AWorkerUsesNoCoreOfAnotherNode) {
  const Schedule schedule = find_generator("gpipe").generate({.stages = 2, .micro_batches = 2});
  const CostModel costs = CostModel::uniform(schedule, testing::costs(1, 1));
  const auto makespan = [&](const std::vector<std::size_t>& node_of, double cores) {
    const NodePlacement nodes{.node_of = node_of, .copies = {1, 1}, .sums_leave = {false, false}};
    return simulate(schedule, costs, {.cores = {.cores = cores, .nodes = nodes}}).makespan;
  };
  EXPECT_EQ(makespan({0, 0}, 1), 8) << "all work of both";
  EXPECT_EQ(makespan({0, 1}, 1), makespan({0, 0}, 2));
}

TEST(SharedCoresTest, SumsComputeOnEachOfTheirWorkers) {
  const TwoCopies example;
  const auto ends = [&](double cores, double share) {
    const Timeline timeline =
        simulate(example.schedule, example.costs, {.cores = {.cores = cores, .all_reduce_share = share}});
    return timeline.makespan - timeline.ops_end;
  };
  EXPECT_EQ(ends(2, 1), 2);
  EXPECT_EQ(ends(1, 1), 4);            // two workers, one core
  EXPECT_EQ(ends(1, 0), 2);            // waiting needs no core
  EXPECT_EQ(ends(0.5, 0.5), 2 * 1.5);  // demand 1 on half a core: half the time at half speed
}

TEST(SharedCoresTest, RefusesImpossibleCores) {
  const TwoCopies example;
  EXPECT_THROW((void)simulate(example.schedule, example.costs, {.cores = {.cores = 0}}), ConfigError);
  EXPECT_THROW((void)simulate(example.schedule, example.costs, {.cores = {.cores = std::nan("")}}), ConfigError);
  EXPECT_THROW((void)simulate(example.schedule, example.costs, {.cores = {.cores = 1, .all_reduce_share = 1.5}}),
               ConfigError);
  Schedule stuck = find_generator("gpipe").generate({2, 2});
  std::reverse(stuck.workers[0].begin(), stuck.workers[0].end());
  EXPECT_THROW((void)simulate(stuck, CostModel::uniform(stuck, testing::costs(1, 2)), {.cores = {.cores = 1}}),
               ScheduleError);
}

/// Work done on an op between its start and end. All ops running at the same time have the same rate.
double given(const std::vector<TimedOp>& ops, const TimedOp& op, double cores) {
  std::vector<double> times;
  for (const TimedOp& other : ops) {
    for (const double time : {other.start, other.end}) {
      if (time >= op.start && time <= op.end) times.push_back(time);
    }
  }
  std::sort(times.begin(), times.end());
  double work = 0;
  for (std::size_t i = 1; i < times.size(); ++i) {
    const double middle = (times[i - 1] + times[i]) / 2;
    const auto running =
        std::count_if(ops.begin(), ops.end(), [&](const TimedOp& o) { return o.start < middle && middle < o.end; });
    work += (times[i] - times[i - 1]) * std::min(1.0, cores / static_cast<double>(running));
  }
  return work;
}

RC_GTEST_PROP(SharedCoresProperty, EveryOpIsGivenItsWork, ()) {
  const auto& generator = generators()[*rc::gen::inRange<std::size_t>(0, generators().size())];
  const auto shapes = testing::small_shapes(generator.name, 4);
  const Schedule schedule = generator.generate(*rc::gen::elementOf(shapes));
  CostModel costs;
  for (std::int64_t s = 0; s < schedule.stages; ++s) {
    const auto time = [] { return 0.25 * *rc::gen::inRange(1, 20); };
    costs.stages.push_back({time(), time(), time(), time()});
  }
  costs.latency = 0.1 * *rc::gen::inRange(0, 4);
  const double cores = 0.5 * *rc::gen::inRange(1, 10);
  const Timeline timeline = simulate(schedule, costs, {.cores = {.cores = cores}});
  const CostTable table(schedule, costs);
  std::vector<TimedOp> all;
  for (const WorkerTimeline& worker : timeline.workers) all.insert(all.end(), worker.ops.begin(), worker.ops.end());
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
    for (std::size_t i = 0; i < schedule.workers[w].size(); ++i) {
      const double work = table.duration(schedule.workers[w][i]);
      RC_ASSERT(std::abs(given(all, timeline.workers[w].ops[i], cores) - work) < 1e-6);
    }
  }
  RC_ASSERT(timeline.makespan >= simulate(schedule, costs).makespan - 1e-9);
}

}  // namespace
}  // namespace chimera
