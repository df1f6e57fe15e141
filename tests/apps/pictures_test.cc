
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/program.h"
#include "support/refusal.h"

namespace chimera::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string picture_output(const Words& arguments, const std::vector<std::string>& environment = {}) {
  const ProgramResult result = succeeded(ProgramRun(arguments, {.environment = environment}).wait());
  return result.output;
}

Words drawn(const std::string& command, const Words& flags) {
  return split("{} chimera --stages 4 --micro-batches 8", command) + flags;
}

TEST(PicturesTest, APipeGetsNoColorsUnlessAskedFor) {
  EXPECT_THAT(picture_output(drawn("schedule", {}), {"TERM=xterm-256color"}), Not(HasSubstr("\x1b")));
  EXPECT_THAT(picture_output(drawn("schedule", "--color always")), HasSubstr("\x1b["));
  EXPECT_THAT(picture_output(drawn("simulate", "--color always"), {"NO_COLOR=1"}), HasSubstr("\x1b["));
}

TEST(PicturesTest, DrawsSchedulesSideBySide) {
  for (const char* command : {"schedule", "simulate"}) {
    const std::string text = picture_output(drawn(command, "--with 1f1b --with gpipe"));
    EXPECT_THAT(text, HasSubstr("1f1b, D = 4, N = 8"));
    EXPECT_THAT(text, HasSubstr("all-reduce volume"));
    const std::string page = picture_output(drawn(command, "--with 1f1b --format html"));
    EXPECT_THAT(page, StartsWith("<!doctype html>"));
    EXPECT_THAT(page, HasSubstr("\"title\":\"1f1b, D = 4, N = 8\""));
    EXPECT_THAT(picture_output(drawn(command, "--format svg")), StartsWith("<svg "));
    EXPECT_THAT(picture_output(drawn(command, "--format perfetto")), HasSubstr("\"traceEvents\""));
  }
}

TEST(PicturesTest, SlotsOfSplitAndWholeBackwardHoldTheSameWork) {
  EXPECT_THAT(picture_output(drawn("schedule", "--with gpipe")), HasSubstr("3F2 3B2 3F3 3B3"));
  const std::string mixed = picture_output(drawn("schedule", "--with chimera-zb"));
  EXPECT_THAT(mixed, HasSubstr("3F2 3B2  \"  3F3 3B3")) << "a whole backward beside I and W takes two slots";
}

TEST(PicturesTest, AFlagMayBelongToTheComparedSchedule) {
  EXPECT_THAT(picture_output("simulate 1f1b --stages 4 --micro-batches 8 --with chimera --pipelines 4"),
              HasSubstr("chimera, D = 4, N = 8, 4 replicas"));
}

TEST(PicturesTest, DrawsAFileNextToASchedule) {
  const Scratch scratch;
  const std::string file = scratch.path("mine.json");
  (void)picture_output(split("schedule gpipe --stages 4 --micro-batches 8 --format json --output {}", file));
  EXPECT_THAT(picture_output(drawn("simulate", {"--with", file})), HasSubstr("gpipe, D = 4, N = 8"));
  EXPECT_THAT(picture_output(split("simulate --file {} --with 1f1b", file)), HasSubstr("1f1b, D = 4, N = 8"));
}

TEST(PicturesTest, RefusesUndrawableRequests) {
  const std::vector<Refusal> refusals = {
      {drawn("schedule", "--with 1f1b --format svg"), {"--with goes with text and html"}},
      {drawn("simulate", "--with 1f2b"), {"unknown schedule '1f2b'", "'1f1b'"}},
      {drawn("simulate", "--with missing.json"), {"missing.json: cannot be read"}},
      {drawn("simulate", "--color sometimes"), {"'sometimes'", "always"}},
      {"schedule gpipe --stages 800 --micro-batches 800 --format html", {"HTML page: 1280000 ops"}},
  };
  for (const Refusal& refusal : refusals) expect_refusal(refusal);
}

}  // namespace
}  // namespace chimera::testing
