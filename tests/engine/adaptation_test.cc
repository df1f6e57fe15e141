// Decisions about slow ranks, on tables of times without clocks.

#include "engine/adaptation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "check/check_schedule.h"
#include "core/random.h"
#include "simulate/simulate.h"

namespace chimera {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

RunShape adapted_shape(const std::string& schedule, const PipelineShape& shape, std::int64_t groups = 1) {
  return run_shape({.schedule = {.name = schedule, .shape = shape}, .data_parallel = groups});
}

/// Tables in which each op takes 10 ms times the rank's factor, and noise.
class Measurements {
 public:
  explicit Measurements(const RunShape& run) : run_(run), table_(run.num_ranks(), run.schedule.stages) {}

  /// Returns the table of a step of `step_seconds`. Each time is a median of `noise`.
  SharedTimes& next(const std::vector<double>& factors, double noise = 0, double step_seconds = 0.5,
                    const std::vector<LinkDelay>& links = {}, bool is_waited = true) {
    const RankGroups groups = run_.rank_groups();
    static_cast<void>(table_.numbers_of(SharedTimes::kSteps, RankId(0)));
    for (std::size_t rank = 0; rank < factors.size(); ++rank) {
      for (std::size_t s = 0; s < groups.size(); ++s) {
        if (!std::ranges::binary_search(groups[s], RankId(static_cast<std::int64_t>(rank)))) continue;
        for (const OpKind kind : {OpKind::Forward, OpKind::BackwardInput, OpKind::BackwardWeight}) {
          std::vector<double> steps;
          for (std::int64_t i = 0; i < SharedTimes::kSteps; ++i) steps.push_back(0.01 * (1 + noise * normal()));
          std::ranges::sort(steps);
          table_.op(rank, s, static_cast<std::size_t>(kind)) = factors[rank] * steps[4];
        }
      }
      table_.step(rank) = step_seconds;
    }
    // The clock of the second rank is 1000 s ahead, as on another host.
    for (const auto& [one, other, seconds] : links) {
      table_.link(other.index(), one.index(), is_waited) = seconds + 1000;
      table_.link(one.index(), other.index(), is_waited) = seconds - 1000;
    }
    return table_;
  }

 private:
  double normal() {
    const double u = random_.uniform(drawn_++);
    return std::sqrt(-2 * std::log(1 - u)) * std::cos(2 * std::numbers::pi * random_.uniform(drawn_++));
  }

  const RunShape& run_;
  SharedTimes table_;
  CounterRandom random_{1, "noise"};
  std::uint64_t drawn_ = 0;
};

TEST(AdaptationTest, ASlowRankLosesMicroBatchesAfterTwoTables) {
  const RunShape run = adapted_shape("chimera-zb", {2, 8});
  Measurements measured(run);
  Adaptation adaptation(run, 1);
  EXPECT_FALSE(adaptation.consider(measured.next({1, 1}), {}));
  EXPECT_FALSE(adaptation.consider(measured.next({1, 2}), {}));
  const auto task = adaptation.consider(measured.next({1, 2}), {});
  ASSERT_TRUE(task);
  EXPECT_THAT(task->factors, ElementsAre(1, DoubleNear(2, 1e-9)));
  const auto found = adapted_run(*task);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->text, HasSubstr("rank 1 takes 2.0 times as long; "));
  EXPECT_THAT(found->text, HasSubstr(" of its 8 micro-batches go to rank 0: "));
  const RunShape slow = rerouted_run(run, found->change, 1);
  EXPECT_THAT(check(slow.schedule), IsEmpty());
  EXPECT_EQ(slow.rank_groups(), run.rank_groups());
  EXPECT_GT(slow.schedule.workers[0].size(), slow.schedule.workers[1].size());

  EXPECT_FALSE(adaptation.consider(measured.next({1, 2.2}), found->change)) << "as slow as before";
  EXPECT_FALSE(adaptation.consider(measured.next({1, 1}), found->change));
  const auto healed = adaptation.consider(measured.next({1, 1}), found->change);
  ASSERT_TRUE(healed);
  const auto back = adapted_run(*healed);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->change, RunChange{});
  EXPECT_THAT(back->text, HasSubstr("rank 1 is as fast as the others again: "));
}

TEST(AdaptationTest, TheOrderFollowsASlowLink) {
  const RunShape run = adapted_shape("chimera-zb", {4, 8});
  Measurements measured(run);
  const std::vector<double> even(4, 1);
  const std::vector<LinkDelay> slow = {{RankId(1), RankId(2), 0.04}};
  const auto with = [&](const std::vector<LinkDelay>& links, bool is_waited = true) -> SharedTimes& {
    return measured.next(even, 0, 0.5, links, is_waited);
  };
  Adaptation adaptation(run, 1);
  const std::vector<LinkDelay> usual = {{RankId(1), RankId(2), 0.004}};
  for (int table = 0; table < 3; ++table)
    EXPECT_FALSE(adaptation.consider(with(slow, /*is_waited=*/false), {})) << "an upper bound alone";
  for (int table = 0; table < 3; ++table) EXPECT_FALSE(adaptation.consider(with(usual), {})) << "below half a forward";
  EXPECT_FALSE(adaptation.consider(with(slow), {})) << "one table";
  const auto task = adaptation.consider(with(slow), {});
  ASSERT_TRUE(task);
  ASSERT_EQ(task->delays.size(), 1);
  EXPECT_NEAR(task->delays.front().seconds, 0.04, 1e-9);
  const auto found = adapted_run(*task, 2);
  ASSERT_TRUE(found);
  EXPECT_THAT(check(found->change.schedule.operator*()), IsEmpty());
  EXPECT_THAT(found->text, HasSubstr("messages between ranks 1 and 2 take 0.04 s: "));
  // 47.2 and 27.1 in units of 10 ms, by `simulate` and `search`
  EXPECT_LE(simulate(*found->change.schedule, task->costs).makespan, 0.29);
  EXPECT_GE(simulate(run.schedule, task->costs).makespan, 0.47);
  EXPECT_EQ(rerouted_run(run, found->change, 1).rank_groups(), run.rank_groups());
  EXPECT_FALSE(adaptation.consider(with(slow, /*is_waited=*/false), found->change)) << "hidden, as planned";
  EXPECT_FALSE(adaptation.consider(with({}), found->change));
  // A message that was there after 1 ms shows that the link is fast, though nobody waited for it.
  const std::vector<LinkDelay> healed = {{RankId(1), RankId(2), 0.001}};
  EXPECT_FALSE(adaptation.consider(with(healed, false), found->change));
  const auto back = adaptation.consider(with(healed, false), found->change);
  ASSERT_TRUE(back);
  EXPECT_THAT(back->delays, IsEmpty());
  EXPECT_FALSE(adaptation.consider(with(healed), found->change)) << "considered once";
}

TEST(AdaptationTest, GroupsTakeTheWorkOfASlowRank) {
  const RunShape run = adapted_shape("1f1b", {2, 8}, 2);
  Measurements measured(run);
  Adaptation adaptation(run, 2);
  EXPECT_FALSE(adaptation.consider(measured.next({1, 1, 2, 1}), {}));
  const auto task = adaptation.consider(measured.next({1, 1, 2, 1}), {});
  ASSERT_TRUE(task);
  const auto found = adapted_run(*task);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->text, HasSubstr("rank 2 takes 2.0 times as long"));
  EXPECT_EQ(rerouted_run(run, found->change, 2).rank_groups(), run.rank_groups());
}

TEST(AdaptationTest, AChangeMustPay) {
  const RunShape run = adapted_shape("chimera-zb", {2, 8});
  Measurements measured(run);
  const auto found = [&](double step_seconds, double change_seconds) {
    Adaptation adaptation(run, 1);
    static_cast<void>(adaptation.consider(measured.next({1, 2}), {}));
    auto task = adaptation.consider(measured.next({1, 2}, 0, step_seconds), {});
    task->change_seconds = change_seconds;
    return adapted_run(*task).has_value();
  };
  EXPECT_TRUE(found(0.5, 1));
  EXPECT_FALSE(found(0.5, 100)) << "lasts longer than it saves";
  EXPECT_FALSE(found(100, 1)) << "less than 5 % of a step";
}

TEST(AdaptationTest, NoiseChangesNothing) {
  for (const std::string name : {"chimera", "chimera-zb"}) {
    const RunShape run = adapted_shape(name, {4, 8});
    Measurements measured(run);
    Adaptation adaptation(run, 1);
    for (int table = 0; table < 500; ++table) {
      const auto task = adaptation.consider(measured.next({1, 1, 1, 1}, 0.1), {});
      ASSERT_FALSE(task && adapted_run(*task)) << name << " in table " << table;
    }
  }
}

TEST(AdaptationTest, ATableWithoutTheTimesOfARankIsIgnored) {
  const RunShape run = adapted_shape("chimera", {2, 4});
  Measurements measured(run);
  Adaptation adaptation(run, 1);
  EXPECT_FALSE(adaptation.consider(measured.next({1, 2}), {}));
  SharedTimes& table = measured.next({1, 2});
  table.step(0) = 0;
  EXPECT_FALSE(adaptation.consider(table, {}));
  EXPECT_FALSE(adaptation.consider(measured.next({1, 2}), {})) << "the first of two in a row";
  EXPECT_TRUE(adaptation.consider(measured.next({1, 2}), {}));
}

TEST(SharedTimesTest, TheTableHasMediansOfTheLastSteps) {
  SharedTimes times(2, 2);
  OpTimes total(2);
  for (int step = 1; step <= 12; ++step) {
    total.add({.kind = OpKind::Forward, .stage = StageId(1)}, {.wall_seconds = static_cast<double>(step)});
    total.add({.kind = OpKind::Forward, .stage = StageId(1)}, {.wall_seconds = static_cast<double>(step)});
    times.note_step(total, 10.0 * step);
  }
  EXPECT_THAT(times.numbers_of(19, RankId(1)), IsEmpty());
  const auto numbers = times.numbers_of(20, RankId(1));
  EXPECT_EQ(times.op(1, 1, static_cast<std::size_t>(OpKind::Forward)), 7);  // Of 3 .. 12
  EXPECT_EQ(times.step(1), 70);
  EXPECT_EQ(times.step(0), 0);
  EXPECT_EQ(std::ranges::count_if(numbers, [](double number) { return number != 0; }), 2);
  times.forget();
  EXPECT_EQ(std::ranges::max(times.numbers_of(30, RankId(1))), 0);
}

TEST(SharedTimesTest, ALinkHasTheMedianOfMostSteps) {
  SharedTimes times(2, 2);
  for (int step = 1; step <= 10; ++step) {
    TransitTime time{.waited = {}, .bound = 0.001};
    if (step > 3) time.waited = 0.001 * step;
    times.note_step(OpTimes(2), 1, {{RankId(0), time}});
  }
  const auto numbers = times.numbers_of(10, RankId(1));
  EXPECT_EQ(times.link(1, 0, true), 0.005);
  EXPECT_EQ(times.link(1, 0, false), 0.001);
  EXPECT_EQ(std::ranges::count_if(numbers, [](double number) { return number != 0; }), 3) << "with the step";
}

}  // namespace
}  // namespace chimera
