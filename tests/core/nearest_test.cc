#include "core/choices.h"

#include <gtest/gtest.h>

namespace chimera {
namespace {

const std::vector<std::string> kSomeNames = {"chimera", "gpipe", "1f1b"};

TEST(NearestTest, FindsAMisspelledName) {
  EXPECT_EQ(find_nearest("chimra", kSomeNames), "chimera");
  EXPECT_EQ(find_nearest("1f1d", kSomeNames), "1f1b");
}

TEST(NearestTest, ASwapOfNeighborsIsOneEdit) {
  EXPECT_EQ(find_nearest("hepl", std::vector<std::string>{"heads", "help"}), "help");
  EXPECT_EQ(find_nearest("jsno", std::vector<std::string>{"json"}), "json");
}

TEST(NearestTest, FindsNothingNearAnUnrelatedWord) {
  EXPECT_EQ(find_nearest("batch-size", std::vector<std::string>{"machine", "steps"}), std::nullopt);
  EXPECT_EQ(find_nearest("gpus", std::vector<std::string>{"run", "top"}), std::nullopt);
  EXPECT_EQ(find_nearest("xyzzyxyzzy", kSomeNames), std::nullopt);
  EXPECT_EQ(find_nearest(std::string(100'000, 'c'), kSomeNames), std::nullopt);
}

TEST(NearestTest, UnknownNameSaysTheNearestOrAll) {
  EXPECT_EQ(unknown_name("schedule", "gpip", kSomeNames), "unknown schedule 'gpip'; did you mean 'gpipe'?");
  EXPECT_EQ(unknown_name("schedule", "xyzzyxyzzy", kSomeNames),
            "unknown schedule 'xyzzyxyzzy'; known: chimera, gpipe, 1f1b");
  EXPECT_EQ(unknown_name("schedule", "gpip\n", kSomeNames), "unknown schedule 'gpip\\x0a'; did you mean 'gpipe'?");
}

TEST(NearestTest, UnknownNameSaysWhichNamesBeginWithIt) {
  const std::vector<std::string> machines = {"h100-80gb", "h200", "p100-aries"};
  EXPECT_EQ(unknown_name("machine", "h", machines), "unknown machine 'h'; several begin with it: h100-80gb, h200");
  EXPECT_EQ(unknown_name("machine", "h100", machines), "unknown machine 'h100'; did you mean 'h100-80gb'?");
  EXPECT_EQ(unknown_name("machine", "h20", machines), "unknown machine 'h20'; did you mean 'h200'?");
  const std::vector<std::string> fields = {"micro_batches", "micro_batch_scale", "stages"};
  EXPECT_EQ(unknown_name("field", "micro_batch", fields),
            "unknown field 'micro_batch'; did you mean 'micro_batches'? Also begin with it: micro_batch_scale");
  EXPECT_EQ(unknown_name("machine", "", machines), "unknown machine ''; known: h100-80gb, h200, p100-aries");
}

TEST(NearestTest, UnknownNameListsAtMost32Names) {
  std::vector<std::string> names;
  for (int i = 0; i < 40; ++i) names.push_back("schedule-" + std::to_string(i));
  const std::string message = unknown_name("flag", "x", names);
  EXPECT_TRUE(message.ends_with(", schedule-31, and 8 more")) << message;
}

}  // namespace
}  // namespace chimera
