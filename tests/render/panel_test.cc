#include "render/panel.h"

#include <gtest/gtest.h>

#include "panels.h"
#include "simulate/explain.h"

namespace chimera {
namespace {

TEST(PanelTest, ChimeraHoldsTwoReplicasAndSumsEachStageOnce) {
  const Totals totals = testing::panel_of("chimera", {4, 4}).totals;
  EXPECT_EQ(totals.weight_copies, 2);
  EXPECT_EQ(totals.peak_units, 4);
  EXPECT_EQ(totals.messages, 1) << "those of the explanation";
  EXPECT_EQ(totals.all_reduce_volume, 8) << "two workers send one gradient each, for four stages";
  EXPECT_EQ(all_reduce_volume_text(totals), "8 stage gradients");
  const Totals four_pipelines = testing::panel_of("chimera", {4, 4, 4}).totals;
  EXPECT_EQ(four_pipelines.weight_copies, 4);
  EXPECT_EQ(four_pipelines.all_reduce_volume, 2 * (4 - 1) * 4) << "four workers a stage";
}

TEST(PanelTest, OneReplicaNeedsNoSum) {
  const Totals totals = testing::panel_of("gpipe", {4, 6}).totals;
  EXPECT_EQ(totals.weight_copies, 1);
  EXPECT_EQ(totals.peak_units, 6);
  EXPECT_EQ(totals.all_reduce_volume, 0);
}

TEST(PanelTest, SmallerMicroBatchesCountLess) {
  const Totals totals = testing::panel_of("chimera", {4, 8, 2, 2, 1, ScaleMethod::Halving}).totals;
  EXPECT_EQ(totals.message_volume, 0.5);
  EXPECT_EQ(totals.peak_units,
            testing::panel_of("chimera", {4, 16, 2, 2, 1, ScaleMethod::Doubling}).totals.peak_units / 2);
}

TEST(PanelTest, CostsInBytesMakeBytes) {
  const Schedule schedule = find_generator("chimera").generate({2, 2});
  CostModel costs = CostModel::uniform(schedule, testing::costs(1, 2));
  costs.links = LinkCosts{.alpha = 0, .beta = 0, .bytes = {1024}};
  costs.all_reduce = AllReduceCosts{.alpha = 0, .beta = 0.5, .bytes = {10, 20}};
  const Timeline timeline = simulate(schedule, costs);
  const Totals totals = totals_of(schedule, timeline, explain(schedule, costs, timeline), costs);
  EXPECT_EQ(totals.messages, 4) << "a forward and a backward of each micro-batch";
  EXPECT_EQ(message_volume_text(totals), "4 KiB");
  EXPECT_EQ(all_reduce_volume_text(totals), "60 B") << "two workers send one gradient each, for both stages";
  costs.all_reduce->tied = true;
  costs.all_reduce->bytes.push_back(4);
  EXPECT_EQ(all_reduce_volume_text(totals_of(schedule, timeline, {}, costs)), "68 B") << "both also own the matrix";
  ASSERT_TRUE(totals.makespan_with_all_reduce);
  EXPECT_GT(*totals.makespan_with_all_reduce, timeline.ops_end);
  costs.all_reduce->data_parallel = 2;
  EXPECT_EQ(totals_of(schedule, timeline, {}, costs).all_reduce_volume, 6) << "two of four send 3/2, for both stages";
}

TEST(PanelTest, BytesInFourDigits) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(3.0 * (1 << 30)), "3 GiB");
}

TEST(PanelTest, ComparisonSaysHowMuchLongerTheOthersTake) {
  const std::string table = comparison_table({testing::panel_of("chimera", {4, 4}), testing::panel_of("1f1b", {4, 4})});
  EXPECT_NE(table.find("chimera          16           "), std::string::npos) << table;
  EXPECT_NE(table.find("1f1b             21   +31.2 %"), std::string::npos) << table;
  EXPECT_EQ(testing::count(table, "\n"), 3U);
}

}  // namespace
}  // namespace chimera
