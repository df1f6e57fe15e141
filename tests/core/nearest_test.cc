#include "core/choices.h"

#include <gtest/gtest.h>

namespace chimera {
namespace {

const std::vector<std::string> kNames = {"chimera", "gpipe", "1f1b"};

TEST(NearestTest, FindsAMisspelledName) {
  EXPECT_EQ(nearest("chimra", kNames), "chimera");
  EXPECT_EQ(nearest("1f1d", kNames), "1f1b");
}

TEST(NearestTest, FindsNothingNearAnUnrelatedWord) {
  EXPECT_EQ(nearest("xyzzyxyzzy", kNames), std::nullopt);
  EXPECT_EQ(nearest(std::string(100'000, 'c'), kNames), std::nullopt);
}

TEST(NearestTest, UnknownNameSaysTheNearestOrAll) {
  EXPECT_EQ(unknown_name("schedule", "gpip", kNames), "unknown schedule 'gpip'; did you mean 'gpipe'?");
  EXPECT_EQ(unknown_name("schedule", "xyzzyxyzzy", kNames),
            "unknown schedule 'xyzzyxyzzy'; known: chimera, gpipe, 1f1b");
  EXPECT_EQ(unknown_name("schedule", "gpip\n", kNames), "unknown schedule 'gpip\\x0a'; did you mean 'gpipe'?");
}

}  // namespace
}  // namespace chimera
