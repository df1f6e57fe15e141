#include "render/timeline_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/json.h"
#include "simulate/explain.h"
#include "support/schedules.h"

namespace chimera {
namespace {

TEST(TimelineJsonTest, HoldsTheNumbersOfTheTimeline) {
  const Schedule schedule = find_generator("chimera").generate({4, 4});
  const CostModel costs = CostModel::uniform(schedule, testing::costs(1, 2));
  const Timeline timeline = simulate(schedule, costs);
  const auto json = read_json(to_json(schedule, timeline, explain(schedule, costs, timeline)));
  EXPECT_EQ(json["makespan"], 16.0);
  EXPECT_EQ(json["bubble_ratio"], 0.25);
  EXPECT_EQ(json["lower_bound"], 16.0);
  ASSERT_EQ(json["workers"].size(), 4U);
  EXPECT_EQ(json["workers"][0]["peak_in_flight"], 3);
  const auto& op = json["workers"][3]["ops"][1];
  EXPECT_EQ(op["op"], "F");
  EXPECT_EQ(op["stage"], 0);
  EXPECT_EQ(op["replica"], 1);
  EXPECT_EQ(op["micro_batch"], 3);
  EXPECT_EQ(op["start"], 1.0);
  EXPECT_EQ(op["end"], 2.0);
}

}  // namespace
}  // namespace chimera
