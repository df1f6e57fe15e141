#include "passes/lower.h"

#include <gtest/gtest.h>

#include <string>

#include "generate/registry.h"
#include "passes/unroll.h"

namespace chimera {
namespace {

/// A worker's ops and the updates after them.
std::string line(const Schedule& schedule, std::size_t worker, bool sums = false) {
  const auto placed = place_updates(schedule, sums)[worker];
  std::string text;
  auto next = placed.begin();
  for (std::size_t i = 0; i < schedule.workers[worker].size(); ++i) {
    text += (text.empty() ? "" : ", ") + to_text(schedule.workers[worker][i]);
    for (; next != placed.end() && next->after == i; ++next) text += ", " + to_text(next->instruction);
  }
  return text;
}

TEST(PlaceUpdatesTest, PipeDreamUpdatesAfterEveryBackward) {
  const Schedule step = find_generator("pipedream").generate({2, 3});
  EXPECT_EQ(line(step, 0),
            "0F0, 0F1, 0B0, update stage 0 to version 1, 0F2, 0B1, drop version 0 of stage 0, "
            "update stage 0 to version 2, 0B2, drop version 1 of stage 0, drop version 2 of stage 0, "
            "update stage 0 to version 3");
  EXPECT_EQ(line(step, 1),
            "1F0, 1B0, drop version 0 of stage 1, update stage 1 to version 1, "
            "1F1, 1B1, drop version 1 of stage 1, update stage 1 to version 2, "
            "1F2, 1B2, drop version 2 of stage 1, update stage 1 to version 3");
}

TEST(PlaceUpdatesTest, DoubleBufferingUpdatesOnceAStepAndSumsBefore) {
  const Schedule two = unroll(find_generator("pipedream-2bw").generate({1, 2}), 2);
  EXPECT_EQ(line(two, 0, /*sums=*/true),
            "0F0, 0B0, 0F1, 0B1, start all-reduce of stage 0, wait for all-reduce of stage 0, "
            "update stage 0 to version 1, 0F2, 0B2, 0F3, 0B3, drop version 0 of stage 0, drop version 1 of stage 0, "
            "start all-reduce of stage 0, wait for all-reduce of stage 0, update stage 0 to version 2");
}

TEST(PlaceUpdatesTest, AnIncompleteLastGroupIsAnUpdateAtTheEnd) {
  Schedule schedule = find_generator("pipedream-2bw").generate({1, 3});
  schedule.updates->micro_batches = 2;
  EXPECT_EQ(line(schedule, 0),
            "0F0, 0B0, 0F1, 0B1, update stage 0 to version 1, 0F2, 0B2, drop version 0 of stage 0, "
            "drop version 1 of stage 0, update stage 0 to version 2");
}

TEST(PlaceUpdatesTest, SynchronousSchedulesHaveNoUpdates) {
  EXPECT_EQ(line(find_generator("1f1b").generate({2, 1}), 0), "0F0, 0B0");
}

}  // namespace
}  // namespace chimera
