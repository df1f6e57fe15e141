#include "simulate/links.h"

#include <gtest/gtest.h>

#include "simulate/simulate.h"
#include "support/schedules.h"

namespace chimera {
namespace {

/// Two stages, F and B of one unit, messages of `link_time` on the link and `delay` after it.
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

TEST(LinksTest, CarryOneMessageAtATime) {
  const Schedule schedule = find_generator("gpipe").generate({2, 3});
  const Timeline timeline = simulate(schedule, with_links(schedule, 4, 0));
  // Forwards end at 1, 2 and 3; the link takes them one after the other, the gradients have another link.
  EXPECT_EQ(starts(timeline.workers[1]), (std::vector<double>{5, 9, 13, 14, 15, 16}));
  EXPECT_EQ(starts(timeline.workers[0]), (std::vector<double>{0, 1, 2, 19, 23, 27}));
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

TEST(LinksTest, BothDirectionsOfChimeraHaveLinksOfTheirOwn) {
  // The down forward and the up backward cross between workers 0 and 1 in opposite directions at the same time.
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
