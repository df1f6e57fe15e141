#include "render/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "generate/detours.h"
#include "support/schedules.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string picture(const std::string& name, const PipelineShape& shape, const TextStyle& style = {}) {
  const Schedule schedule = find_generator(name).generate(shape);
  return to_text(schedule, testing::timed(schedule, 1, 1), style);
}

TEST(TextTest, OpsOfTwoUnitsTakeTwoSlots) {
  const Schedule schedule = find_generator("1f1b").generate({2, 2});
  EXPECT_EQ(to_text(schedule, testing::timed(schedule, 1, 2)),
            "worker 0 | 0F0 0F1  .   .  0B0  \"   .  0B1  \"         . a bubble, found by simulate()\n"
            "worker 1 |  .  1F0 1B0  \"  1F1 1B1  \"   .   .\n");
}

TEST(TextTest, SlicesAreCellsWithTheirNumber) {
  EXPECT_EQ(picture("gpipe", {.stages = 2, .micro_batches = 1, .slices = 2}),
            "worker 0 | 0F0.0 0F0.1   .     .   0B0.1 0B0.0        . a bubble, found by simulate()\n"
            "worker 1 |   .   1F0.0 1F0.1 1B0.1 1B0.0   .\n");
}

TEST(TextTest, FractionsOfAUnitAreDrawnToScale) {
  const Schedule schedule = find_generator("1f1b").generate({2, 2});
  EXPECT_EQ(to_text(schedule, testing::timed(schedule, 1, 1.5)),
            "worker 0 | 0F0 0F1 ......0B0-- ....0B1--         . a bubble, - the op goes on; to scale\n"
            "worker 1 | ....1F0 1B0-- 1F1 1B1-- ......\n");
}

TEST(TextTest, OpsWithoutTimeStandInOrder) {
  const Schedule schedule = find_generator("1f1b").generate({2, 2});
  EXPECT_EQ(to_text(schedule, testing::timed(schedule, 0, 1)),
            "worker 0 | 0F0 0F1 0B0 0B1\n"
            "worker 1 | 1F0 1B0 1F1 1B1\n");
}

TEST(TextTest, TimesFarBelowTheUnitAreDrawnToScale) {
  const Schedule schedule = find_generator("1f1b").generate({2, 2});
  const std::string usual = to_text(schedule, testing::timed(schedule, 1, 1), {.unit = 0.3});
  for (const double time : {1e-7, 1e-11, 1e-300})
    EXPECT_EQ(to_text(schedule, testing::timed(schedule, time, time)), usual) << time;
}

TEST(TextTest, ThePairsOfAPictureAreJoined) {
  Schedule schedule = find_generator("gpipe").generate({1, 2});  // 0F0 0F1 0B0 0B1
  schedule.workers[0][1].paired = true;
  CostModel costs = CostModel::uniform(schedule, testing::costs(1, 2));
  EXPECT_EQ(to_text(schedule, simulate(schedule, costs)),
            "worker 0 | 0F0 0F1&0B0  \"  0B1  \"         . a bubble, found by simulate()\n& two ops of a pair\n");
  costs.pair = 1;  // both in three slots, the second named in the second
  EXPECT_EQ(to_text(schedule, simulate(schedule, costs)),
            "worker 0 | 0F0 0F1&0B0  \"  0B1  \"         . a bubble, found by simulate()\n& two ops of a pair\n");
  costs.pair = 0.8;
  EXPECT_EQ(to_text(schedule, simulate(schedule, costs)),
            "worker 0 | 0F0 0F1&0B0-- 0B1----         . a bubble, - the op goes on; to scale\n& two ops of a pair\n");
  costs = CostModel::uniform(schedule, testing::costs(1, 1));
  costs.pair = 0;  // one slot for both
  EXPECT_THAT(to_text(schedule, simulate(schedule, costs)), HasSubstr("|   0F0   0F1&0B0   0B1  "));
}

TEST(TextTest, WithoutOpsThereAreNoColumns) {
  Schedule schedule = find_generator("1f1b").generate({2, 2});
  for (auto& ops : schedule.workers) ops.clear();
  EXPECT_THAT(to_text(schedule, testing::timed(schedule, 1, 1)), HasSubstr("worker 1 |\n"));
}

TEST(TextTest, ListsTheMicroBatchesOfEachDirection) {
  EXPECT_THAT(picture("chimera", {2, 2}), HasSubstr("down: micro-batch 0\n"));
  EXPECT_THAT(picture("chimera", {.stages = 4, .micro_batches = 4, .chunks = 2}),
              HasSubstr("up:   micro-batches 2, 3\n"));
  EXPECT_THAT(picture("chimera", {2, 2}), HasSubstr("up:   micro-batch 1\n"));
  EXPECT_THAT(picture("chimera", {4, 1}), HasSubstr("up:   no micro-batch"));
  EXPECT_THAT(picture("chimera", {8, 64}), HasSubstr("(32 in all)"));
}

TEST(TextTest, IsPlainUnlessAskedForColors) {
  EXPECT_THAT(picture("chimera", {4, 4}), Not(HasSubstr("\x1b")));
  const std::string colored = picture("chimera", {4, 4}, {.colored = true});
  EXPECT_THAT(colored, HasSubstr("\x1b[38;5;16;48;5;74m0F1\x1b[0m  .  "));
  EXPECT_THAT(colored, HasSubstr("\x1b[4;38;5;16;48;5;153m0F2\x1b[0m")) << "up: paler and underlined";
}

TEST(TextTest, ColorsOnlyWrapCells) {
  const Schedule schedule = find_generator("chimera").generate({4, 8});
  for (const double backward : {2.0, 1.3}) {
    const Timeline timeline = testing::timed(schedule, 1, backward);
    const std::string colored = to_text(schedule, timeline, {.colored = true});
    const std::string plain = std::regex_replace(colored, std::regex("\x1b\\[[0-9;]*m"), "");
    EXPECT_EQ(std::regex_replace(plain, std::regex(" +\n"), "\n"), to_text(schedule, timeline));
  }
}

TEST(TextTest, FoldsToTheTerminal) {
  EXPECT_EQ(picture("1f1b", {2, 4}, {.columns = 32}),
            "worker 0 | 0F0 0F1  .  0B0 0F2\n"
            "worker 1 |  .  1F0 1B0 1F1 1B1\n"
            "\n"
            "worker 0 | 0B1 0F3 0B2  .  0B3\n"
            "worker 1 | 1F2 1B2 1F3 1B3  .\n"
            ". a bubble, found by simulate()\n");
  EXPECT_EQ(picture("1f1b", {2, 4}, {.columns = 50}).substr(0, 50), picture("1f1b", {2, 4}).substr(0, 50));
  EXPECT_THAT(picture("chimera", {4, 4}, {.columns = 80}), HasSubstr("\ndown: micro-batches 0, 1\n"));
  EXPECT_THAT(picture("1f1b", {2, 4}, {.columns = 1}), HasSubstr("worker 1 | 1B3\n")) << "at least a cell a line";
}

TEST(TextTest, CutsUnreadablyLongPictures) {
  const std::string text = picture("gpipe", {2, 100'000});
  EXPECT_LT(text.size(), 12 * kMaxTextCells);
  EXPECT_TRUE(text.ends_with("... cut: 75002 of 200002 columns are not shown; another --format has them all\n"));
}

TEST(TextTest, TheRowOfALostWorkerSaysSo) {
  const Generator& generator = find_generator("chimera-zb");
  const Schedule healthy = generator.generate(default_shape(generator, 4, 4));
  const Schedule schedule = make_detours({.healthy = healthy, .slow = {{WorkerId(1)}}}).schedule;
  const std::string text = to_text(schedule, testing::timed(schedule, 1, 2));
  EXPECT_THAT(text, HasSubstr("worker 1 | lost"));
  EXPECT_EQ(text.find("lost"), text.rfind("lost"));
}

TEST(TextTest, StagesOfOneWorkerKeepTheirNumbers) { EXPECT_THAT(picture("chimera", {12, 12}), HasSubstr("11F0 ")); }

}  // namespace
}  // namespace chimera
