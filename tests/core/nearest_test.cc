#include "core/choices.h"

#include <gtest/gtest.h>

namespace chimera {
namespace {

const std::vector<std::string> kNames = {"chimera", "gpipe", "1f1b"};

TEST(NearestTest, FindsAMisspelledName) {
  EXPECT_EQ(nearest("chimra", kNames), "chimera");
  EXPECT_EQ(nearest("1f1d", kNames), "1f1b");
}

TEST(NearestTest, ASwapOfNeighborsIsOneEdit) {
  EXPECT_EQ(nearest("hepl", std::vector<std::string>{"heads", "help"}), "help");
  EXPECT_EQ(nearest("jsno", std::vector<std::string>{"json"}), "json");
}

TEST(NearestTest, FindsNothingNearAnUnrelatedWord) {
  EXPECT_EQ(nearest("batch-size", std::vector<std::string>{"machine", "steps"}), std::nullopt);
  EXPECT_EQ(nearest("gpus", std::vector<std::string>{"run", "top"}), std::nullopt);
  EXPECT_EQ(nearest("xyzzyxyzzy", kNames), std::nullopt);
  EXPECT_EQ(nearest(std::string(100'000, 'c'), kNames), std::nullopt);
}

TEST(NearestTest, UnknownNameSaysTheNearestOrAll) {
  EXPECT_EQ(unknown_name("schedule", "gpip", kNames), "unknown schedule 'gpip'; did you mean 'gpipe'?");
  EXPECT_EQ(unknown_name("schedule", "xyzzyxyzzy", kNames),
            "unknown schedule 'xyzzyxyzzy'; known: chimera, gpipe, 1f1b");
  EXPECT_EQ(unknown_name("schedule", "gpip\n", kNames), "unknown schedule 'gpip\\x0a'; did you mean 'gpipe'?");
}

TEST(NearestTest, UnknownNameListsAtMost32Names) {
  std::vector<std::string> names;
  for (int i = 0; i < 40; ++i) names.push_back("schedule-" + std::to_string(i));
  const std::string message = unknown_name("flag", "x", names);
  EXPECT_TRUE(message.ends_with(", schedule-31, and 8 more")) << message;
}

}  // namespace
}  // namespace chimera
