#include "plan/stage_choice.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(StageChoiceTest, WordsAndListsReadBack) {
  for (const char* text : {"none", "cheap", "attention", "full", "auto", "0", "0,1,5", "full:2", "cheap:4+full:2",
                           "cheap:1,0+attention:2,2+full:0,3"})
    EXPECT_EQ(to_text(parse_stages(kRecomputeFlag, text)), text);
  EXPECT_EQ(to_text(parse_stages(kRecomputeFlag, "5,0,0")), "0,5");
  EXPECT_EQ(to_text(parse_stages(kRecomputeFlag, "full:3,3+cheap:1")), "cheap:1,1+full:3,3");
  EXPECT_EQ(to_text(parse_stages(kRecomputeFlag, "full:0")), "none");
}

TEST(StageChoiceTest, StagesOfAPlanBecomeTheShortestChoice) {
  EXPECT_EQ(to_text(stage_choice({}, 2)), "none");
  EXPECT_EQ(to_text(stage_choice({StageId(1)}, 2)), "1");
  EXPECT_EQ(to_text(stage_choice({StageId(0), StageId(1)}, 2)), "full");
}

TEST(StageChoiceTest, RefusesAnythingElse) {
  const auto refusal = [](const char* text, const char* words) {
    EXPECT_THAT([&] { (void)parse_stages(kRecomputeFlag, text); }, ThrowsMessage<ConfigError>(HasSubstr(words)))
        << text;
  };
  refusal("ful", "unknown --recompute 'ful'; did you mean 'full'?");
  for (const char* junk : {"", ",", "0,", ",0", "0,,1", "-1", "0;1", " 0", "0,x", "99999999999"})
    refusal(junk, "expected none, cheap, attention, full, auto, or stages such as 0,1");
  for (const char* junk : {":", "full:", "full:x", "full:1,", "none:1", "half:1", "full:-1", "full:1+", "full:1+full:2",
                           "full:1,2+cheap:1,2,3", "full:1;2", "full:1 "})
    refusal(junk, "expected LEVEL:BLOCKS, joined by +");
}

TEST(StageChoiceTest, CountsBecomeLevelsOfBlocks) {
  const auto levels = [](const char* text) {
    std::vector<StageLayers> partition = explicit_partition({3, 1}, 4, 2);
    set_levels(partition, parse_stages(kRecomputeFlag, text));
    return std::pair(partition[0].levels.counts, partition[1].levels.counts);
  };
  using Counts = std::array<std::int64_t, 4>;
  EXPECT_EQ(levels("none"), std::pair(Counts{}, Counts{}));
  EXPECT_EQ(levels("full"), std::pair(Counts{}, Counts{})) << "whole stages";
  EXPECT_EQ(levels("cheap"), std::pair(Counts({0, 3, 0, 0}), Counts({0, 1, 0, 0})));
  EXPECT_EQ(levels("cheap:4+full:1"), std::pair(Counts({0, 2, 0, 1}), Counts({0, 0, 0, 1}))) << "at most all blocks";
  EXPECT_EQ(levels("attention:2,0+full:0,1"), std::pair(Counts({0, 0, 2, 0}), Counts({0, 0, 0, 1})));
  EXPECT_THAT([&] { (void)levels("full:1,1,1"); },
              ThrowsMessage<ConfigError>(HasSubstr("--recompute full:1,1,1: 3 numbers for 2 stages")));
  EXPECT_THAT([&] { (void)levels("cheap:1+full:1,1"); },
              ThrowsMessage<ConfigError>("--recompute cheap:1,1+full:1,1: stage 1 has 1 blocks, fewer than 2"));
}

TEST(StageChoiceTest, BlocksTakeTheHighestLevelsFirst) {
  BlockLevels levels = BlockLevels::at(RecomputeLevel::Full, 1);
  levels[RecomputeLevel::Cheap] = 2;
  const std::vector<RecomputeLevel> expected = {RecomputeLevel::Full, RecomputeLevel::Cheap, RecomputeLevel::Cheap,
                                                RecomputeLevel::None};
  for (std::int64_t i = 0; i < 4; ++i) EXPECT_EQ(levels.level_of(i), expected[static_cast<std::size_t>(i)]) << i;
}

TEST(StageChoiceTest, OffloadTakesStagesAndBlocksButNotAttention) {
  for (const char* text : {"none", "full", "auto", "0,1,5", "full:2", "full:0,1"})
    EXPECT_EQ(to_text(parse_stages(kOffloadFlag, text)), text);
  EXPECT_THAT([] { (void)parse_stages(kOffloadFlag, "attention"); },
              ThrowsMessage<ConfigError>(HasSubstr("unknown --offload 'attention'")));
  EXPECT_THAT([] { (void)parse_stages(kOffloadFlag, "-1"); },
              ThrowsMessage<ConfigError>("--offload -1: expected none, full, auto, or stages such as 0,1"));
}

TEST(StageChoiceTest, OffloadedBlocksAreTheFirstOfTheirStages) {
  const auto offloaded = [](const char* text) {
    std::vector<StageLayers> partition = explicit_partition({3, 1}, 4, 2);
    const StageChoice choice = parse_stages(kOffloadFlag, text);
    set_on_device(partition, choice);
    return std::tuple(resolve_stages(choice, kOffloadFlag, 2, {}), partition[0].on_device, partition[1].on_device);
  };
  const std::set<StageId> both = all_stages(2);
  EXPECT_EQ(offloaded("full"), std::tuple(both, 0, 0));
  EXPECT_EQ(offloaded("full:2"), std::tuple(both, 1, 0)) << "at most all blocks";
  EXPECT_EQ(offloaded("full:1,0"), std::tuple(std::set{StageId(0)}, 2, 1));
  EXPECT_EQ(offloaded("full:0"), std::tuple(std::set<StageId>(), 3, 1));
  EXPECT_THAT([&] { (void)offloaded("full:1,2"); },
              ThrowsMessage<ConfigError>("--offload full:1,2: stage 1 has 1 blocks, fewer than 2"));
  EXPECT_THAT([&] { (void)offloaded("cheap:1"); }, ThrowsMessage<ConfigError>(HasSubstr("each LEVEL (full) once")));
}

TEST(StageChoiceTest, AChoiceBecomesStagesOfASchedule) {
  const std::set<StageId> automatic = {StageId(2)};
  const auto stages = [&](const char* text) {
    return resolve_stages(parse_stages(kRecomputeFlag, text), kRecomputeFlag, 3, [&] { return automatic; });
  };
  EXPECT_EQ(stages("none"), std::set<StageId>());
  for (const char* text : {"cheap", "attention", "full:2,2,2"}) EXPECT_EQ(stages(text), std::set<StageId>());
  EXPECT_EQ(stages("full"), all_stages(3));
  EXPECT_EQ(stages("auto"), automatic);
  EXPECT_EQ(stages("0,2"), (std::set<StageId>{StageId(0), StageId(2)}));
}

TEST(StageChoiceTest, RefusesStagesAndRulesThatDoNotExist) {
  const StageFlag flag{.name = "recompute", .rules = {"none", "full"}};
  const auto refusal = [&](const char* text) {
    EXPECT_THAT([&] { (void)resolve_stages(parse_stages(kRecomputeFlag, text), flag, 3, {}); },
                ThrowsMessage<ConfigError>(
                    fmt::format("recompute {}: expected none, full, or stages of 0 to 2 such as 0,1", text)));
  };
  refusal("0,3");
  refusal("auto");
}

}  // namespace
}  // namespace chimera
