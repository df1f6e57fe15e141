#include "schedule/dependencies.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "support/schedules.h"

namespace chimera {
namespace {

Schedule two_stages() {
  const auto op = [](OpKind kind, std::int64_t stage) {
    return Op{kind, ReplicaId(0), StageId(stage), MicroBatchId(0)};
  };
  return {"pair",
          2,
          1,
          {{{WorkerId(0), WorkerId(1)}}},
          {{op(OpKind::Forward, 0), op(OpKind::Backward, 0)},
           {op(OpKind::Forward, 1), op(OpKind::BackwardInput, 1), op(OpKind::BackwardWeight, 1)}}};
}

TEST(DependenciesTest, EachOpNamesItsInputsAndItsConsumer) {
  const Schedule schedule = two_stages();
  const OpTable table(schedule);
  const auto inputs = [&](OpIndex op) { return table.inputs(table.op(op)); };
  using Inputs = std::array<OpIndex, 3>;
  EXPECT_EQ(inputs(0), (Inputs{kNoOp, kNoOp, kNoOp}));
  EXPECT_EQ(inputs(2), (Inputs{0, kNoOp, kNoOp}));  // 1F0 after 0F0
  EXPECT_EQ(inputs(3), (Inputs{kNoOp, 2, kNoOp}));  // 1I0 after 1F0
  EXPECT_EQ(inputs(4), (Inputs{kNoOp, 3, kNoOp}));  // 1W0 after 1I0
  EXPECT_EQ(inputs(1), (Inputs{3, 0, kNoOp}));      // 0B0 after 1I0 and 0F0
  EXPECT_EQ(table.consumer(table.op(0)), 2U);
  EXPECT_EQ(table.consumer(table.op(3)), 1U);
  EXPECT_EQ(table.consumer(table.op(4)), kNoOp);
}

TEST(DependenciesTest, SlicesNeedEarlierSlicesForwardAndLaterSlicesBackward) {
  Schedule schedule = two_stages();
  schedule.slices = 2;
  for (auto& ops : schedule.workers) {
    const std::vector<Op> first = ops;
    for (Op op : first) {
      op.slice = 1;
      ops.push_back(op);
    }
  }
  const OpTable table(schedule);  // worker 0: 0F0.0 0B0.0 0F0.1 0B0.1, worker 1 from 4: F.0 I.0 W.0 F.1 I.1 W.1
  const auto inputs = [&](OpIndex op) { return table.inputs(table.op(op)); };
  using Inputs = std::array<OpIndex, 3>;
  EXPECT_EQ(inputs(0), (Inputs{kNoOp, kNoOp, kNoOp}));
  EXPECT_EQ(inputs(2), (Inputs{kNoOp, kNoOp, 0}));  // 0F0.1 after 0F0.0
  EXPECT_EQ(inputs(7), (Inputs{2, kNoOp, 4}));      // 1F0.1 after 0F0.1 and 1F0.0
  EXPECT_EQ(inputs(8), (Inputs{kNoOp, 7, kNoOp}));  // 1I0.1 after 1F0.1
  EXPECT_EQ(inputs(5), (Inputs{kNoOp, 4, 8}));      // 1I0.0 after 1F0.0 and 1I0.1
  EXPECT_EQ(inputs(1), (Inputs{5, 0, 3}));          // 0B0.0 after 1I0.0, 0F0.0 and 0B0.1
  EXPECT_EQ(inputs(6), (Inputs{kNoOp, 5, kNoOp}));  // 1W0.0 after 1I0.0
  EXPECT_EQ(table.consumer(table.op(2)), 7U);
  EXPECT_EQ(table.consumer(table.op(5)), 1U);
}

TEST(DependenciesTest, VisitsAllOpsOfALegalScheduleAfterTheirInputs) {
  for (const Generator& generator : generators()) {
    const Schedule schedule = generator.generate(testing::small_shapes(generator.name, 8).back());
    const OpTable table(schedule);
    std::vector<bool> seen(table.size(), false);
    const auto visited = visit_in_dependency_order(table, [&](OpIndex op) {
      for (const OpIndex input : table.inputs(table.op(op))) EXPECT_TRUE(input == kNoOp || seen[input]);
      seen[op] = true;
    });
    for (std::size_t w = 0; w < visited.size(); ++w) EXPECT_EQ(visited[w], schedule.workers[w].size());
  }
}

TEST(DependenciesTest, StopsIfOpsWaitForEachOther) {
  Schedule schedule = two_stages();
  std::swap(schedule.workers[1][0], schedule.workers[1][1]);
  const OpTable table(schedule);
  const auto visited = visit_in_dependency_order(table, [](OpIndex) {});
  EXPECT_EQ(visited, (std::vector<std::size_t>{1, 0}));
  EXPECT_THROW((void)unit_start_times(table), ScheduleError);
}

TEST(DependenciesTest, WakesEveryWorkerThatWaitsForAnOp) {
  Schedule schedule = two_stages();
  for (int doubled = 0; doubled < 2; ++doubled) schedule.workers.push_back(schedule.workers[1]);
  std::swap(schedule.workers[0], schedule.workers[3]);  // all replicas of 1F0 wait for the 0F0 of the last worker
  const auto visited = visit_in_dependency_order(OpTable(schedule), [](OpIndex) {});
  EXPECT_EQ(visited, (std::vector<std::size_t>{3, 3, 3, 2}));
}

TEST(ScheduleTest, StageGroupsAreTheDistinctHolders) {
  const auto groups = stage_groups(find_generator("chimera").generate({4, 4}).placement);
  using Group = std::vector<WorkerId>;
  EXPECT_EQ(groups, (std::vector<Group>{{WorkerId(0), WorkerId(3)},
                                        {WorkerId(1), WorkerId(2)},
                                        {WorkerId(1), WorkerId(2)},
                                        {WorkerId(0), WorkerId(3)}}));
}

}  // namespace
}  // namespace chimera
