
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <thread>

#include "job.h"

namespace chimera {
namespace {

using std::chrono::milliseconds;
using testing::Job;
using ::testing::MatchesRegex;
using testing::ProgramResult;
using testing::Words;

void expect_hang(const Words& actions, const std::string& rank_and_state, const std::string& fault = "") {
  const ProgramResult result = Job(actions, fault, milliseconds(200)).wait();
  EXPECT_EQ(result.exit_code, 1);
  expect_clean(result);
  const auto colon = rank_and_state.find(": ");
  EXPECT_THAT(result.messages,
              MatchesRegex("chimera: " + rank_and_state.substr(0, colon) + " has made no progress for [0-9.]+ s" +
                           rank_and_state.substr(colon) + "\n"));
}

TEST(LauncherHangTest, NamesTheRankAndItsOp) {
  expect_hang("wait-for-message stop-itself wait-for-message", "rank 1: stopped by a signal at 1F3 in step 1");
  expect_hang("wait-for-message wait-for-message compute-forever", "rank 2: it hangs at 1F3 in step 1");
  expect_hang("wait-for-message wait-for-message",
              "rank 0: like the others, it waits at wait for 0F2 from worker 0 in step 1");
  expect_hang("wait", "rank 0: it hangs at start-up");
  expect_hang("wait wait", "rank 1: stopped by a signal at start-up", "stop@start:1");
}

TEST(LauncherHangTest, ComputingRankGetsMoreTime) {
  const ProgramResult result = Job("compute-at-start ok", "", milliseconds(50)).wait();
  EXPECT_EQ(result.messages, "");
  EXPECT_EQ(result.exit_code, 0);
}

TEST(LauncherHangTest, AJobStoppedAndContinuedAsAWholeDoesNotHang) {
  Job job("work wait-for-message", "", milliseconds(200));
  job.await_lines(2);
  job.send_to_all(SIGSTOP);
  std::this_thread::sleep_for(milliseconds(1000));
  job.send_to_all(SIGCONT);
  std::this_thread::sleep_for(milliseconds(100));  // a false alarm would come within this time
  job.send(SIGTERM);
  const ProgramResult result = job.wait();
  EXPECT_EQ(result.messages, "chimera: ended by signal 15 (Terminated)\n");
  EXPECT_EQ(result.exit_code, 143);
}

}  // namespace
}  // namespace chimera
