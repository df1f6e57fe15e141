
#include "launch/local/ask.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace chimera {
namespace {

using std::chrono::milliseconds;

std::vector<std::string> shell(const std::string& line) { return {"/bin/sh", "-c", line}; }

TEST(AskTest, EachCommandHasItsOwnAnswer) {
  const SignalInbox signals;
  const auto replies = ask({shell("cat; echo out; echo err >&2"), shell("exit 7"), shell("kill -9 $$")},
                           std::chrono::minutes(1), signals);
  ASSERT_EQ(replies.size(), 3U);
  EXPECT_EQ(replies[0]->exit_code, 0);
  EXPECT_EQ(replies[0]->output, "out\n") << "nothing on standard input";
  EXPECT_EQ(replies[0]->errors, "err\n");
  EXPECT_EQ(replies[1]->exit_code, 7);
  EXPECT_EQ(replies[2]->exit_code, 137);
}

TEST(AskTest, LongAnswersAreComplete) {
  const SignalInbox signals;
  const auto replies = ask({shell("head -c 200000 /dev/zero")}, std::chrono::minutes(1), signals);
  EXPECT_EQ(replies[0]->output, std::string(200000, '\0'));
}

TEST(AskTest, CommandsAreKilledAfterTheTimeLimit) {
  const SignalInbox signals;
  EXPECT_EQ(ask({{"sleep", "1000"}, shell("exec sleep 1000")}, milliseconds(10), signals),
            (std::vector<std::optional<CommandReply>>(2)));
}

TEST(AskTest, StopsWaitingOnceTheNeededAnswersAgree) {
  const SignalInbox signals;
  const auto replies = ask({shell("exit 0"), shell("exit 0"), {"sleep", "1000"}}, std::chrono::minutes(10), signals, 2);
  EXPECT_EQ(replies[1]->exit_code, 0);
  EXPECT_EQ(replies[2], std::nullopt);
  const auto others = ask({shell("exit 1"), shell("echo here")}, std::chrono::minutes(10), signals, 1);
  EXPECT_EQ(others[1]->output, "here\n") << "the first has not agreed";
}

TEST(AskTest, SignalEndsTheCommandsAndStaysPending) {
  SignalInbox signals;
  EXPECT_FALSE(signals.waiting());
  ::raise(SIGTERM);
  const auto replies = ask({{"sleep", "1000"}}, std::chrono::minutes(10), signals);
  EXPECT_EQ(replies[0], std::nullopt);
  EXPECT_TRUE(signals.waiting());
  EXPECT_EQ(wait_between_starts(signals, std::chrono::minutes(10)), 75);
  ::raise(SIGINT);
  EXPECT_EQ(wait_between_starts(signals, std::chrono::minutes(10)), 130);
  EXPECT_EQ(wait_between_starts(signals, milliseconds(0)), std::nullopt);
}

}  // namespace
}  // namespace chimera
