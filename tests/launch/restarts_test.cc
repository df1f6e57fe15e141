#include "launch/local/restarts.h"

#include <gtest/gtest.h>

#include <vector>

namespace chimera {
namespace {

using std::chrono::seconds;

TEST(RestartsTest, JobWithProgressRestartsAtOnceUpToTheLimit) {
  Restarts restarts(3);
  for (const std::int64_t step : {0, 7, 20}) {
    const Restarts::Advice advice = restarts.after_failure(step);
    EXPECT_TRUE(advice.again);
    EXPECT_EQ(advice.pause, seconds(0));
  }
  const Restarts::Advice last = restarts.after_failure(30);
  EXPECT_FALSE(last.again);
  EXPECT_EQ(last.why_not, "not restarted: all attempts of --max-restarts 3 are used");
  EXPECT_EQ(restarts.done(), 3);
}

TEST(RestartsTest, JobWithoutProgressBacksOff) {
  Restarts restarts(100);
  std::vector<seconds> pauses;
  for (int failure = 0; failure < 9; ++failure) pauses.push_back(restarts.after_failure(9 - failure % 2).pause);
  EXPECT_EQ(pauses, (std::vector<seconds>{seconds(0), seconds(1), seconds(2), seconds(4), seconds(8), seconds(16),
                                          seconds(32), seconds(60), seconds(60)}));
  EXPECT_EQ(restarts.after_failure(10).pause, seconds(0)) << "it has come further";
}

TEST(RestartsTest, TheSameStepThreeTimesInARowIsALoop) {
  Restarts restarts(100);
  for (const std::int64_t step : {5, 5, 4, 5, 5}) EXPECT_TRUE(restarts.after_failure(step).again);
  EXPECT_EQ(restarts.after_failure(5).why_not, "not restarted: it has failed in step 5 3 times in a row");
  Restarts at_start(100);
  EXPECT_TRUE(at_start.after_failure(0).again);
  EXPECT_TRUE(at_start.after_failure(0).again);
  EXPECT_EQ(at_start.after_failure(0).why_not, "not restarted: it has failed before its first step 3 times in a row");
}

TEST(RestartsTest, MessagesNameTheCountedEvents) {
  Restarts restarts(100, {.again = "begun", .flag = "--most"});
  for (const std::int64_t step : {0, 0, 7, 7}) EXPECT_TRUE(restarts.after_failure(step).again);
  EXPECT_EQ(restarts.after_failure(7).why_not, "not begun: it has failed in step 7 3 times in a row");
  Restarts once(1, {.again = "begun", .flag = "--most"});
  EXPECT_TRUE(once.after_failure(0).again);
  EXPECT_EQ(once.after_failure(7).why_not, "not begun: all attempts of --most 1 are used");
}

TEST(RestartsTest, NoRestartsGiveNoMessage) {
  Restarts restarts(0);
  for (int failure = 0; failure < 3; ++failure) {
    const Restarts::Advice advice = restarts.after_failure(5);
    EXPECT_FALSE(advice.again);
    EXPECT_EQ(advice.why_not, "");
  }
}

}  // namespace
}  // namespace chimera
