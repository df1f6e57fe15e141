#include "simulate/links.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "simulate/simulate.h"
#include "support/message_of.h"
#include "support/schedules.h"

namespace chimera {
namespace {

/// Two stages, F and B of one unit. Messages occupy the link for `link_time` and arrive `delay` later.
CostModel with_links(const Schedule& schedule, double link_time, double delay) {
  CostModel costs = CostModel::uniform(schedule, testing::costs(1, 1));
  costs.links =
      LinkCosts{delay, 0.5, std::vector<double>(static_cast<std::size_t>(schedule.stages - 1), 2 * link_time)};
  return costs;
}

std::vector<double> starts(const WorkerTimeline& worker) {
  std::vector<double> times;
  for (const TimedOp& op : worker.ops) times.push_back(op.start);
  return times;
}

void expect_alike(const Timeline& one, const Timeline& other) {
  EXPECT_EQ(one.makespan, other.makespan);
  EXPECT_EQ(one.lower_bound, other.lower_bound);
  for (std::size_t w = 0; w < one.workers.size(); ++w)
    EXPECT_EQ(starts(one.workers[w]), starts(other.workers[w])) << "worker " << w;
}

TEST(LinksTest, CarryOneMessageAtATime) {
  const Schedule schedule = find_generator("gpipe").generate({2, 3});
  const Timeline timeline = simulate(schedule, with_links(schedule, 4, 0));
  // Forwards end at 1, 2 and 3. The link takes their messages in turn; gradients use another link.
  EXPECT_EQ(starts(timeline.workers[1]), (std::vector<double>{5, 9, 13, 14, 15, 16}));
  EXPECT_EQ(starts(timeline.workers[0]), (std::vector<double>{0, 1, 2, 19, 23, 27}));
}

TEST(LinksTest, ABurstPassesBeforeTheLinkLimitsTheRate) {
  const Schedule schedule = find_generator("gpipe").generate({2, 3});
  CostModel costs = with_links(schedule, 4, 0);
  costs.links->bursts = {1};
  // The link is busy as before, but every message leaves it 1 earlier. The same holds if contention is enabled.
  const SharedCores shared{.cores = 2, .contention = {.transfers = 1}};
  for (const Timeline& timeline : {simulate(schedule, costs), simulate(schedule, costs, {.cores = shared})}) {
    EXPECT_EQ(starts(timeline.workers[1]), (std::vector<double>{4, 8, 12, 13, 14, 15}));
    EXPECT_EQ(starts(timeline.workers[0]), (std::vector<double>{0, 1, 2, 17, 21, 25}));
  }
}

TEST(LinksTest, ShortMessagesPassAtOnceUntilTheBurstIsUsedUp) {
  const Schedule schedule = find_generator("gpipe").generate({2, 3});
  CostModel costs = with_links(schedule, 4, 0);
  costs.links->bursts = {5};
  const SharedCores shared{.cores = 2, .contention = {.transfers = 1}};
  for (const Timeline& timeline : {simulate(schedule, costs), simulate(schedule, costs, {.cores = shared})})
    EXPECT_EQ(starts(timeline.workers[1]), (std::vector<double>{1, 4, 8, 9, 10, 11}));
}

TEST(LinksTest, DelayHoldsAnyNumberOfMessages) {
  const Schedule schedule = find_generator("gpipe").generate({2, 3});
  const Timeline timeline = simulate(schedule, with_links(schedule, 0, 4));
  EXPECT_EQ(starts(timeline.workers[1]), (std::vector<double>{5, 6, 7, 8, 9, 10}));
}

TEST(LinksTest, DelayAndLatencyAddUp) {
  const Schedule schedule = find_generator("gpipe").generate({2, 1});
  CostModel costs = with_links(schedule, 1, 0.5);
  costs.latency = 0.25;
  EXPECT_EQ(simulate(schedule, costs).makespan, 4 + 2 * (1 + 0.5 + 0.25));
}

TEST(LinksTest, HalfMicroBatchesHaveHalfTheBytes) {
  Schedule schedule = find_generator("gpipe").generate({2, 1});
  schedule.micro_batch_scale = 0.5;
  EXPECT_EQ(simulate(schedule, with_links(schedule, 3, 1)).makespan, 4 * 0.5 + 2 * (1.5 + 1));
}

TEST(LinksTest, BothDirectionsOfChimeraHaveSeparateLinks) {
  // The down forward and the up backward cross between workers 0 and 1 at the same time.
  const Schedule schedule = find_generator("chimera").generate({2, 2});
  const Timeline timeline = simulate(schedule, with_links(schedule, 2, 0));
  EXPECT_EQ(starts(timeline.workers[0]), (std::vector<double>{0, 3, 4, 7}));
  EXPECT_EQ(starts(timeline.workers[1]), (std::vector<double>{0, 3, 4, 7}));
}

TEST(LinksTest, BlockingSendsHoldTheSender) {
  const Schedule schedule = find_generator("gpipe").generate({2, 2});
  CostModel costs = with_links(schedule, 1, 1);
  costs.blocking_sends = true;
  const Timeline timeline = simulate(schedule, costs);
  EXPECT_EQ(starts(timeline.workers[0]), (std::vector<double>{0, 3, 10, 13}));
  EXPECT_EQ(starts(timeline.workers[1]), (std::vector<double>{3, 6, 7, 10}));
}

TEST(LinksTest, CopiesTakeComputeTimeAtBothEnds) {
  const Schedule schedule = find_generator("gpipe").generate({2, 2});
  CostModel costs = with_links(schedule, 4, 0);
  costs.links->copies = {0.5};
  const Timeline timeline = simulate(schedule, costs);
  // Forwards of 1.5 leave at 1.5 and 3, arrive at 5.5 and 9.5, and take 0.5 more there. Gradients take as long.
  EXPECT_EQ(starts(timeline.workers[0]), (std::vector<double>{0, 1.5, 16.5, 20.5}));
  EXPECT_EQ(starts(timeline.workers[1]), (std::vector<double>{5.5, 9.5, 11, 12.5}));
  EXPECT_EQ(timeline.makespan, 22);
  EXPECT_EQ(timeline.workers[0].busy, 6);
  expect_alike(simulate(schedule, costs, {.cores = {.cores = 2}}), timeline);
}

TEST(LinksTest, CopiesOfHalfMicroBatchesTakeHalf) {
  Schedule schedule = find_generator("gpipe").generate({2, 1});
  schedule.micro_batch_scale = 0.5;
  CostModel costs = with_links(schedule, 0, 0);
  costs.links->copies = {2};
  EXPECT_EQ(simulate(schedule, costs).makespan, 4 * (0.5 + 1));
}

TEST(LinksTest, RecomputationComesBeforeTheCopyOfTheGradient) {
  const Schedule schedule = find_generator("gpipe").generate({2, 1});
  CostModel costs = with_links(schedule, 0, 3);
  costs.links->copies = {1};
  costs.recompute = {4, 0};
  // F runs 0-2 and arrives at 5; F runs 5-7 and B 7-9, which arrives at 12. The forward runs again at 8, then the copy
  // and the B.
  const Timeline timeline = simulate(schedule, costs);
  EXPECT_EQ(starts(timeline.workers[0]), (std::vector<double>{0, 8}));
  EXPECT_EQ(timeline.makespan, 14);
}

TEST(LinksTest, EveryPairOfWorkersMayHaveItsOwnLink) {
  const Schedule schedule = find_generator("chimera").generate({2, 2});
  CostModel costs = with_links(schedule, 0, 0);
  costs.links = LinkCosts{.bytes = {10}};
  costs.links->matrix = LinkMatrix{{{9, 1}, {0.5, 9}}, {{9, 0.1}, {0.05, 9}}};
  // The activations of the down replica and the gradients of the up replica take 2 from worker 0 to 1; the others take
  // 1 back.
  const Timeline timeline = simulate(schedule, costs);
  EXPECT_EQ(starts(timeline.workers[0]), (std::vector<double>{0, 2, 3, 6}));
  EXPECT_EQ(starts(timeline.workers[1]), (std::vector<double>{0, 3, 4, 6}));
  EXPECT_EQ(timeline.makespan, 7);
  EXPECT_LE(timeline.lower_bound, 7);
  expect_alike(simulate(schedule, costs, {.cores = {.cores = 2}}), timeline);
}

TEST(LinksTest, MatricesWithoutBytesAreDelays) {
  const Schedule schedule = find_generator("gpipe").generate({3, 2});
  CostModel costs = CostModel::uniform(schedule, testing::costs(1, 1), /*latency=*/0.25);
  costs.links = LinkCosts{.matrix = LinkMatrix{{{0, 1, 100}, {2, 0, 3}, {100, 4, 0}}}};
  // On the first worker forwards end at 1 and 2. The way out takes 1.25 + 1 + 3.25, the way back 4.25 + 1 + 2.25.
  const Timeline timeline = simulate(schedule, costs);
  EXPECT_EQ(starts(timeline.workers[2]), (std::vector<double>{6.5, 7.5, 8.5, 9.5}));
  EXPECT_EQ(starts(timeline.workers[0]), (std::vector<double>{0, 1, 17, 18}));
}

TEST(LinksTest, EqualLinksAreAMatrixOfOneNumber) {
  for (const char* name : {"chimera", "1f1b", "interleaved-1f1b", "zb-v"}) {
    SCOPED_TRACE(name);
    const Schedule schedule = find_generator(name).generate({4, 8});
    CostModel costs = with_links(schedule, 0.5, 0.25);
    const Timeline alike = simulate(schedule, costs);
    const LinkCosts uniform = *costs.links;
    const auto all = [](double value) { return std::vector<std::vector<double>>(4, std::vector<double>(4, value)); };
    costs.links = LinkCosts{.bytes = uniform.bytes, .matrix = LinkMatrix{all(uniform.alpha), all(uniform.beta)}};
    expect_alike(simulate(schedule, costs), alike);
  }
}

TEST(LinksTest, RefusesInvalidBursts) {
  const Schedule schedule = find_generator("gpipe").generate({2, 1});
  CostModel costs = with_links(schedule, 1, 0);
  costs.links->bursts = {1, 2};
  EXPECT_THROW(static_cast<void>(simulate(schedule, costs)), ConfigError);
  costs.links->bursts = {-1};
  EXPECT_THROW(static_cast<void>(simulate(schedule, costs)), ConfigError);
}

TEST(LinksTest, RefusesMatricesOfOtherShapes) {
  const Schedule schedule = find_generator("gpipe").generate({2, 1});
  CostModel costs = CostModel::uniform(schedule, testing::costs(1, 1));
  const auto refusal = [&](const LinkMatrix& matrix, const std::vector<double>& bytes) -> std::string {
    costs.links = LinkCosts{.bytes = bytes, .matrix = matrix};
    return testing::message_of([&] { (void)simulate(schedule, costs); }, "simulated");
  };
  EXPECT_EQ(refusal({{{0, 1, 1}, {1, 0, 1}, {1, 1, 0}}}, {}), "links: alphas: 3 rows, but the schedule has 2 workers");
  EXPECT_EQ(refusal({{{0, 1}, {1}}}, {}), "links: alphas, row 1: 1 entries, but the schedule needs 2");
  EXPECT_EQ(refusal({{{0, -1}, {1, 0}}}, {}), "links: alphas, row 0 [1]: -1 is not a finite number of 0 or more");
  EXPECT_EQ(refusal({{{0, 1}, {1, 0}}, {{0, 1}}}, {1}), "links: betas: 1 rows, but the schedule has 2 workers");
  EXPECT_EQ(refusal({{{0, 1}, {1, 0}}, {{0, 1}, {1, 0}}}, {}),
            "links: bytes (betas need them): 0 entries, but the schedule needs 1");
}

TEST(LinksTest, StagesOnOneWorkerSendNothing) {
  Schedule schedule = find_generator("gpipe").generate({1, 1});
  schedule.stages = 2;
  schedule.placement.worker_of = {{WorkerId(0), WorkerId(0)}};
  const Op forward = schedule.workers[0][0];
  const Op backward = schedule.workers[0][1];
  schedule.workers[0] = {forward, forward, backward, backward};
  schedule.workers[0][1].stage = schedule.workers[0][2].stage = StageId(1);
  CostModel costs;
  costs.stages = {{.forward = 1, .backward = 1}, {.forward = 1, .backward = 1}};
  costs.links = LinkCosts{100, 1, {100}};
  costs.blocking_sends = true;
  EXPECT_EQ(simulate(schedule, costs).makespan, 4);
}

}  // namespace
}  // namespace chimera
