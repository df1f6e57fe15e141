#include "search/instance.h"

#include <gtest/gtest.h>

#include "generate/registry.h"
#include "search/problems.h"
#include "support/message_of.h"

namespace chimera {
namespace {

using testing::alike;
using testing::split;

Schedule chimera_of_four() { return find_generator("chimera").generate({.stages = 4, .micro_batches = 8}); }

SearchProblem problem_of_four(bool split_backward) {
  SearchProblem problem = alike(PlacementKind::Bidirectional, {.stages = 4, .micro_batches = 8}, split(1, 1, 1));
  problem.split_backward = split_backward;
  return problem;
}

TEST(InstanceTest, AScheduleSurvivesAsOrders) {
  const SearchProblem problem = problem_of_four(false);
  Schedule back = to_schedule(problem, to_orders(problem, chimera_of_four()));
  back.name = "chimera";
  back.late_forwards = true;  // pictures of searched schedules are drawn early
  EXPECT_EQ(back, chimera_of_four());
}

TEST(InstanceTest, SplitsAWholeBackwardIntoAdjacentOps) {
  const SearchProblem problem = problem_of_four(true);
  const Schedule halves = to_schedule(problem, to_orders(problem, chimera_of_four()));
  EXPECT_TRUE(check(halves).empty());
  const std::vector<Op> whole = chimera_of_four().workers[0];
  std::size_t i = 0;
  for (const Op& op : whole) {
    if (op.kind == OpKind::Backward) {
      EXPECT_EQ(halves.workers[0][i].kind, OpKind::BackwardInput);
      EXPECT_EQ(halves.workers[0][i + 1].kind, OpKind::BackwardWeight);
      i += 2;
    } else {
      EXPECT_EQ(halves.workers[0][i++], op);
    }
  }
}

TEST(InstanceTest, JoinsASplitBackwardInThePlaceOfItsInputGradient) {
  const SearchProblem problem = problem_of_four(true);
  const Schedule halves = to_schedule(problem, to_orders(problem, chimera_of_four()));
  const SearchProblem whole = problem_of_four(false);
  EXPECT_EQ(to_schedule(whole, to_orders(whole, halves)).workers, chimera_of_four().workers);
}

TEST(InstanceTest, TheEvaluatorTimesAsSimulateDoes) {
  for (const bool split_backward : {true, false}) {
    SearchProblem problem = problem_of_four(split_backward);
    problem.costs.latency = 0.3;
    problem.costs.stages[1].forward = 1.7;
    const Instance instance = make_instance(problem);
    const Orders orders = to_orders(problem, chimera_of_four());
    ASSERT_TRUE(is_admissible(instance, orders));
    EXPECT_DOUBLE_EQ(Evaluator(instance).makespan(orders),
                     simulate(to_schedule(problem, orders), problem.costs).makespan);
  }
}

TEST(InstanceTest, TheEvaluatorDetectsACycle) {
  const SearchProblem problem = problem_of_four(true);
  const Instance instance = make_instance(problem);
  Orders orders = to_orders(problem, chimera_of_four());
  // Workers 0 to 2 run all of replica 0 before replica 1; worker 3 runs replica 1 first.
  for (auto& order : orders) std::stable_sort(order.begin(), order.end());
  std::rotate(orders[3].begin(), orders[3].begin() + static_cast<std::ptrdiff_t>(orders[3].size() / 2),
              orders[3].end());
  ASSERT_TRUE(is_admissible(instance, orders));
  EXPECT_EQ(Evaluator(instance).makespan(orders), kDeadlocked);
}

TEST(InstanceTest, OrdersOverALimitAreNotAdmissible) {
  const PipelineShape shape{.stages = 4, .micro_batches = 8};
  const Schedule gpipe = find_generator("gpipe").generate(shape);
  for (const double room : {8.0, 7.0}) {
    SearchProblem problem = alike(PlacementKind::Linear, shape, split(1, 1, 1), 0, room);
    EXPECT_EQ(is_admissible(make_instance(problem), to_orders(problem, gpipe)), room == 8) << room;
  }
}

TEST(InstanceTest, NamesTheWorkersThatWaitForMemory) {
  const SearchProblem problem =
      alike(PlacementKind::Wave, {.stages = 4, .micro_batches = 8, .waves = 1}, split(1, 1, 1), 0, 0.75);
  EXPECT_EQ(testing::message_of([&] { require_room(problem); }, "accepted"),
            "search: --max-in-flight is infeasible: worker 0 has no memory for micro-batch 0 of replica 0, which "
            "needs 1 on this worker; the limit leaves 0.75");
}

}  // namespace
}  // namespace chimera
