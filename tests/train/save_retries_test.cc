#include "train/recover/checkpointer.h"

#include <gtest/gtest.h>

namespace chimera {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr SaveRetries::Clock::time_point kNow{};

TEST(SaveRetriesTest, OnlyFailedSavesAreRetried) {
  SaveRetries retries;
  EXPECT_FALSE(retries.is_due(kNow + seconds(1000)));
  retries.note_failure(kNow);
  retries.note_success();
  EXPECT_FALSE(retries.is_due(kNow + seconds(1000)));
}

TEST(SaveRetriesTest, ThePauseDoublesUpToAMinute) {
  SaveRetries retries;
  for (const int pause : {250, 500, 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000}) {
    retries.note_failure(kNow);
    EXPECT_FALSE(retries.is_due(kNow + milliseconds(pause - 1))) << pause;
    EXPECT_TRUE(retries.is_due(kNow + milliseconds(pause))) << pause;
  }
  retries.note_success();
  retries.note_failure(kNow);
  EXPECT_TRUE(retries.is_due(kNow + SaveRetries::kFirstPause));
}

}  // namespace
}  // namespace chimera
