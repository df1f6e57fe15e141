#include "plan/stage_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(StageChoiceTest, WordsAndListsReadBack) {
  for (const char* text : {"none", "attention", "full", "auto", "0", "0,1,5"})
    EXPECT_EQ(to_text(parse_recompute(text)), text);
  EXPECT_EQ(to_text(parse_recompute("5,0,0")), "0,5");
}

TEST(StageChoiceTest, StagesOfAPlanBecomeTheShortestChoice) {
  EXPECT_EQ(to_text(stage_choice({}, 2)), "none");
  EXPECT_EQ(to_text(stage_choice({StageId(1)}, 2)), "1");
  EXPECT_EQ(to_text(stage_choice({StageId(0), StageId(1)}, 2)), "full");
}

TEST(StageChoiceTest, RefusesAnythingElse) {
  const auto refusal = [](const char* text, const char* words) {
    EXPECT_THAT([&] { (void)parse_recompute(text); }, ThrowsMessage<ConfigError>(HasSubstr(words))) << text;
  };
  refusal("ful", "unknown --recompute 'ful'; did you mean 'full'?");
  for (const char* junk : {"", ",", "0,", ",0", "0,,1", "-1", "0;1", " 0", "0,x", "99999999999"})
    refusal(junk, "expected none, attention, full, auto, or stages such as 0,1");
}

TEST(StageChoiceTest, OffloadTakesStagesButNotAttention) {
  for (const char* text : {"none", "full", "auto", "0,1,5"}) EXPECT_EQ(to_text(parse_offload(text)), text);
  EXPECT_THAT([] { (void)parse_offload("attention"); },
              ThrowsMessage<ConfigError>(HasSubstr("unknown --offload 'attention'")));
  EXPECT_THAT([] { (void)parse_offload("-1"); },
              ThrowsMessage<ConfigError>("--offload -1: expected none, full, auto, or stages such as 0,1"));
}

}  // namespace
}  // namespace chimera
