
#include "launch/local/run_commands.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

namespace chimera {
namespace {

using std::chrono::milliseconds;

std::vector<std::string> shell(const std::string& line) { return {"/bin/sh", "-c", line}; }

TEST(RunCommandsTest, EachCommandHasItsOwnAnswer) {
  const SignalInbox signals;
  const auto replies = run_commands({shell("cat; echo out; echo err >&2"), shell("exit 7"), shell("kill -9 $$")},
                                    std::chrono::minutes(1), signals);
  ASSERT_EQ(replies.size(), 3U);
  EXPECT_EQ(replies[0]->exit_code, 0);
  EXPECT_EQ(replies[0]->output, "out\n") << "nothing on standard input";
  EXPECT_EQ(replies[0]->errors, "err\n");
  EXPECT_EQ(replies[1]->exit_code, 7);
  EXPECT_EQ(replies[2]->exit_code, 137);
}

TEST(RunCommandsTest, LongAnswersAreComplete) {
  const SignalInbox signals;
  const auto replies = run_commands({shell("head -c 200000 /dev/zero")}, std::chrono::minutes(1), signals);
  EXPECT_EQ(replies[0]->output, std::string(200000, '\0'));
}

TEST(RunCommandsTest, CommandsAreKilledAfterTheTimeLimit) {
  const SignalInbox signals;
  EXPECT_EQ(run_commands({{"sleep", "1000"}, shell("exec sleep 1000")}, milliseconds(10), signals),
            (std::vector<std::optional<CommandReply>>(2)));
}

TEST(RunCommandsTest, StopsWaitingOnceTheNeededAnswersAgree) {
  const SignalInbox signals;
  const auto replies =
      run_commands({shell("exit 0"), shell("exit 0"), {"sleep", "1000"}}, std::chrono::minutes(10), signals, 2);
  EXPECT_EQ(replies[1]->exit_code, 0);
  EXPECT_EQ(replies[2], std::nullopt);
  const auto others = run_commands({shell("exit 1"), shell("echo here")}, std::chrono::minutes(10), signals, 1);
  EXPECT_EQ(others[1]->output, "here\n") << "the first has not agreed";
}

TEST(RunCommandsTest, SignalEndsTheCommandsAndStaysPending) {
  SignalInbox signals;
  EXPECT_FALSE(signals.has_signal());
  ::raise(SIGTERM);
  const auto replies = run_commands({{"sleep", "1000"}}, std::chrono::minutes(10), signals);
  EXPECT_EQ(replies[0], std::nullopt);
  EXPECT_TRUE(signals.has_signal());
  EXPECT_EQ(wait_between_starts(signals, std::chrono::minutes(10)), 75);
  ::raise(SIGINT);
  EXPECT_EQ(wait_between_starts(signals, std::chrono::minutes(10)), 130);
  EXPECT_EQ(wait_between_starts(signals, milliseconds(0)), std::nullopt);
}

TEST(WaitForExitsTest, AnExitInputOrTheDeadlineEndsAWait) {
  const SignalInbox signals;
  const PipeEnds pipe = open_pipe(/*nonblocking=*/false);
  std::vector<ChildProcess> processes;
  for (const char* line : {"exit 7", "exec sleep 1000"})
    processes.push_back(
        ChildProcess({.executable = "/bin/sh", .arguments = {"-c", line}, .environment = {}, .descriptors = {}}));
  const auto first = wait_for_exits(processes, signals, pipe.read.get(), std::nullopt);
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].index, 0U);
  EXPECT_EQ(exit_code_of(first[0].ending), 7);
  ASSERT_EQ(::write(pipe.write.get(), "x", 1), 1);
  EXPECT_TRUE(wait_for_exits(processes, signals, pipe.read.get(), std::nullopt).empty()) << "input has ended the wait";
  EXPECT_TRUE(wait_for_exits(processes, signals, -1, std::chrono::steady_clock::now()).empty());
  EXPECT_TRUE(has_running(processes));
  kill_running(processes);
  const auto last = wait_for_exits(processes, signals, -1, std::nullopt);
  ASSERT_EQ(last.size(), 1U);
  EXPECT_EQ(last[0].index, 1U);
  EXPECT_EQ(exit_code_of(last[0].ending), 137);
  EXPECT_FALSE(has_running(processes));
}

}  // namespace
}  // namespace chimera
