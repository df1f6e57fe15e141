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
  for (const char* text : {"none", "attention", "full", "auto", "0", "0,1,5"})
    EXPECT_EQ(to_text(parse_stages(kRecomputeFlag, text)), text);
  EXPECT_EQ(to_text(parse_stages(kRecomputeFlag, "5,0,0")), "0,5");
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
    refusal(junk, "expected none, attention, full, auto, or stages such as 0,1");
}

TEST(StageChoiceTest, OffloadTakesStagesButNotAttention) {
  for (const char* text : {"none", "full", "auto", "0,1,5"}) EXPECT_EQ(to_text(parse_stages(kOffloadFlag, text)), text);
  EXPECT_THAT([] { (void)parse_stages(kOffloadFlag, "attention"); },
              ThrowsMessage<ConfigError>(HasSubstr("unknown --offload 'attention'")));
  EXPECT_THAT([] { (void)parse_stages(kOffloadFlag, "-1"); },
              ThrowsMessage<ConfigError>("--offload -1: expected none, full, auto, or stages such as 0,1"));
}

TEST(StageChoiceTest, AChoiceBecomesStagesOfASchedule) {
  const std::set<StageId> automatic = {StageId(2)};
  const auto stages = [&](const char* text) {
    return resolve_stages(parse_stages(kRecomputeFlag, text), kRecomputeFlag, 3, [&] { return automatic; });
  };
  EXPECT_EQ(stages("none"), std::set<StageId>());
  EXPECT_EQ(stages("attention"), std::set<StageId>());
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
