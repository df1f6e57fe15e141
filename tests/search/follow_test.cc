// Schedules for slow workers: the goals of docs/moving.md, checked op by op from outside of the simulator.

#include "search/follow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <limits>

#include "check/check_limits.h"
#include "check/check_program.h"
#include "check/check_schedule.h"
#include "generate/registry.h"
#include "passes/lower.h"
#include "schedule/dependencies.h"
#include "support/schedules.h"

namespace chimera {
namespace {

using ::testing::IsEmpty;

struct SlowCase {
  const char* name;
  std::int64_t d, n, groups;
  double latency = 0.05;
};

Schedule healthy_of(const SlowCase& of) {
  return find_generator(of.name).generate(default_shape(find_generator(of.name), of.d, of.n));
}

FollowTask follow_task(const SlowCase& of, const std::vector<SlowWorker>& slow) {
  FollowTask task{.detours = {.healthy = healthy_of(of), .groups = of.groups, .slow = slow}, .costs = {}};
  task.costs = CostModel::uniform(task.detours.healthy, testing::costs(1, 2), of.latency);
  task.costs.workers.assign(static_cast<std::size_t>(of.d * of.groups), 1);
  for (const auto& [worker, speed] : slow) {
    if (speed > 0) task.costs.workers[worker.index()] = 1 / speed;
  }
  return task;
}

/// The makespan without simulate(): every op of F, I or W takes 1, or 2 of B, times the factor of its worker.
double replayed_makespan(const Schedule& schedule, const std::vector<double>& factors, double latency) {
  const OpTable table(schedule);
  std::vector<double> end(table.size(), 0);
  std::vector<double> free(schedule.workers.size(), 0);
  visit_in_dependency_order(table, [&](OpIndex op) {
    const std::size_t w = table.worker(op);
    for (const OpIndex input : table.inputs(table.op(op))) {
      if (input != kNoOp) free[w] = std::max(free[w], end[input] + (table.worker(input) == w ? 0 : latency));
    }
    end[op] = free[w] += factors[w] * static_cast<double>(unit_duration(table.op(op).kind));
  });
  return std::ranges::max(free);
}

/// Returns the makespan over that of the healthy schedule without slow workers.
double slow_ratio(const SlowCase& of, std::int64_t worker, double factor) {
  const FollowTask task = follow_task(of, {{WorkerId(worker), 1 / factor}});
  const FollowedCosts found = follow_costs(task);
  EXPECT_THAT(check(found.schedule), IsEmpty());
  const Program program = lower(found.schedule, {});
  EXPECT_THAT(check(program, ChannelDiscipline::PerDirection), IsEmpty());
  EXPECT_NEAR(replayed_makespan(found.schedule, task.costs.workers, of.latency), found.makespan, 1e-6);
  EXPECT_LE(found.makespan, *found.kept_makespan);
  EXPECT_GE(found.makespan, found.bound - 1e-9);
  const Schedule all = in_all_groups(task.detours.healthy, of.groups);
  const std::vector<double> even(all.workers.size(), 1);
  EXPECT_NEAR(replayed_makespan(all, even, of.latency), found.healthy_makespan, 1e-6);
  EXPECT_NEAR(replayed_makespan(all, task.costs.workers, of.latency), *found.kept_makespan, 1e-6);
  const double ratio = found.makespan / found.healthy_makespan;
  std::cout << of.name << " D " << of.d << " N " << of.n << " W " << of.groups << " worker " << worker << " factor "
            << factor << ": kept " << *found.kept_makespan / found.healthy_makespan << ", followed " << ratio
            << ", bound " << found.bound / found.healthy_makespan << '\n';
  return ratio;
}

TEST(FollowTest, AWorkerOfChimeraMayBeSlow) {
  const SlowCase of{"chimera-zb", 8, 16, 1};
  for (const auto& [factor, first, any] : {std::tuple(1.25, 1.06, 1.11), {1.5, 1.15, 1.20}, {2.0, 1.29, 1.34}}) {
    for (std::int64_t worker = 0; worker < of.d; worker += std::getenv("CHIMERA_LONG_TESTS") != nullptr ? 1 : 3)
      EXPECT_LE(slow_ratio(of, worker, factor), worker == 0 ? first : any) << worker << " " << factor;
  }
}

TEST(FollowTest, ASmallPipelineMayHaveASlowWorker) {
  for (std::int64_t worker = 0; worker < 4; ++worker)
    EXPECT_LE(slow_ratio({"chimera-zb", 4, 8, 1}, worker, 2), 1.36) << worker;
  EXPECT_LE(slow_ratio({"chimera-zb", 2, 8, 1}, 0, 2), 1.4);
}

TEST(FollowTest, TheOtherGroupTakesAPart) {
  EXPECT_LE(slow_ratio({"zb-h1", 8, 16, 2}, 0, 2), 1.30);
  EXPECT_LE(slow_ratio({"1f1b", 8, 16, 2}, 0, 2), 1.34);
}

TEST(FollowTest, WithoutAnotherHolderTheOrderIsKeptOrImproved) { EXPECT_LE(slow_ratio({"zb-h1", 4, 8, 1}, 1, 2), 1.9); }

TEST(FollowTest, ALostWorkerHasSpeedZero) {
  const SlowCase of{"chimera-zb", 4, 8, 1, 0};
  const FollowedCosts lost = follow_costs(follow_task(of, {{WorkerId(1), 0}}));
  EXPECT_FALSE(lost.kept_makespan);
  EXPECT_THAT(lost.schedule.workers[1], IsEmpty());
  EXPECT_THAT(check(lost.schedule), IsEmpty());
  EXPECT_LE(lost.makespan, make_detours({.healthy = healthy_of(of), .slow = {{WorkerId(1)}}}).makespan);
}

TEST(FollowTest, LostAndSlowWorkersGoTogether) {
  const SlowCase of{"chimera-zb", 4, 8, 2};
  const FollowTask task = follow_task(of, {{WorkerId(1), 0}, {WorkerId(6), 0.5}});
  const FollowedCosts found = follow_costs(task);
  EXPECT_THAT(check(found.schedule), IsEmpty());
  EXPECT_THAT(found.schedule.workers[1], IsEmpty());
  EXPECT_LT(std::ssize(found.schedule.workers[6]), std::ssize(in_all_groups(task.detours.healthy, 2).workers[6]));
}

TEST(FollowTest, EqualTasksGiveEqualSchedules) {
  const FollowTask task = follow_task({"chimera", 4, 8, 1}, {{WorkerId(2), 0.5}});
  EXPECT_EQ(follow_costs(task).schedule, follow_costs(task).schedule);
}

// Without a stop at the bound, this effort takes days.
TEST(FollowTest, AnOrderThatReachesTheBoundEndsTheSearch) {
  FollowTask task = follow_task({"chimera", 4, 8, 1, 0}, {{WorkerId(2), 0.5}});
  task.effort = std::numeric_limits<std::int64_t>::max();
  EXPECT_DOUBLE_EQ(follow_costs(task).makespan, 36);
}

// The bound and the choice of copies must not depend on the unit of time.
TEST(FollowTest, AnotherUnitOfTimeGivesTheSameSchedule) {
  FollowTask task = follow_task({"chimera-zb", 4, 8, 1, 0}, {{WorkerId(1), 0.5}});
  task.extra_copies = 1;
  const FollowedCosts found = follow_costs(task);
  EXPECT_EQ(found.copies.size(), 1U);
  for (StageCosts& stage : task.costs.stages) {
    for (const auto time : kStageTimes) stage.*time *= 128;
  }
  const FollowedCosts scaled = follow_costs(task);
  EXPECT_EQ(scaled.schedule, found.schedule);
  EXPECT_EQ(scaled.copies, found.copies);
  EXPECT_DOUBLE_EQ(scaled.bound, 128 * found.bound);
}

TEST(FollowTest, UnequalStagesCountInTheChoiceOfPaths) {
  FollowTask task = follow_task({"chimera-zb", 4, 8, 1}, {{WorkerId(0), 0.5}});
  task.costs.stages[0] = {.forward = 3, .backward = 6, .input_gradient = 3, .weight_gradient = 3};
  const FollowedCosts found = follow_costs(task);
  EXPECT_THAT(check(found.schedule), IsEmpty());
  EXPECT_LE(found.makespan, 0.8 * *found.kept_makespan);
  EXPECT_GE(found.makespan, found.bound);
}

// A slow link: the order of ops hides it. The kept order of chimera-zb needs 95.4, see docs/moving.md.
TEST(FollowTest, TheOrderHidesASlowLink) {
  const Schedule schedule = healthy_of({"chimera-zb", 8, 16, 1});
  CostModel costs = CostModel::uniform(schedule, testing::costs(1, 2), 0);
  costs.links.emplace().matrix.emplace().alphas.assign(8, std::vector<double>(8, 0.05));
  costs.links->matrix->alphas[3][4] = costs.links->matrix->alphas[4][3] = 4;
  EXPECT_GE(simulate(schedule, costs).makespan, 90);
  const Schedule found = reordered(schedule, costs, 40'000'000);
  EXPECT_THAT(check(found), IsEmpty());
  EXPECT_LE(simulate(found, costs).makespan, 58);
}

}  // namespace
}  // namespace chimera
