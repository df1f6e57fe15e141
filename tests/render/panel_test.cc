#include "render/panel.h"

#include <gtest/gtest.h>

#include "panels.h"

namespace chimera {
namespace {

TEST(PanelTest, ChimeraHoldsTwoCopiesAndSumsEachStageOnce) {
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

TEST(PanelTest, OneCopyNeedsNoSum) {
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

TEST(PanelTest, BytesInFourDigits) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(3.0 * (1 << 30)), "3 GiB");
  Totals totals;
  totals.message_volume = 1 << 20;
  totals.volumes_in_bytes = true;
  EXPECT_EQ(message_volume_text(totals), "1 MiB");
}

TEST(PanelTest, ComparisonSaysHowMuchLongerTheOthersTake) {
  const std::string table = comparison({testing::panel_of("chimera", {4, 4}), testing::panel_of("1f1b", {4, 4})});
  EXPECT_NE(table.find("chimera          16           "), std::string::npos) << table;
  EXPECT_NE(table.find("1f1b             21   +31.2 %"), std::string::npos) << table;
  EXPECT_EQ(testing::count(table, "\n"), 3U);
}

}  // namespace
}  // namespace chimera
