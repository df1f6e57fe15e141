#include "launch/local/launcher.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "core/error.h"
#include "job.h"
#include "launch/local/process.h"
#include "launch/local/rank.h"
#include "support/scratch.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using testing::Job;
using testing::ProgramResult;
using testing::Words;

/// The parameter: ranks are forked (true), or each loads the program anew (false).
class LauncherTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam()) ::setenv("LAUNCH_TEST_FORKS", "1", 1);
  }
  void TearDown() override { ::unsetenv("LAUNCH_TEST_FORKS"); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, LauncherTest, ::testing::Bool(),
                         [](const auto& forks) { return forks.param ? "Forked" : "Loaded"; });

TEST_P(LauncherTest, SucceedsWhenAllRanksDo) {
  const ProgramResult result = testing::succeeded(Job("ok ok ok ok").wait());
  EXPECT_EQ(result.messages, "");
  expect_clean(result);
}

TEST_P(LauncherTest, PassesEachRankItsPlace) {
  const ProgramResult result = Job("who-am-i who-am-i").wait();
  EXPECT_THAT(result.output, HasSubstr("0 of 2\n"));
  EXPECT_THAT(result.output, HasSubstr("1 of 2\n"));
}

TEST_P(LauncherTest, RanksInheritStoreReportPipeAndProgressPageOnly) {
  EXPECT_EQ(Job("count-descriptors").wait().output, "6 descriptors\n");
}

TEST_P(LauncherTest, RanksAreForkedOnRequest) {
  const ProgramResult result = Job("is-forked").wait();
  EXPECT_EQ(result.output, GetParam() ? "forked\n" : "loaded\n");
}

TEST_P(LauncherTest, RanksDestroyNothingOfTheLaunchers) {
  const ProgramResult result = Job("leave-globals-alone leave-globals-alone").wait();
  EXPECT_EQ(result.messages, "destroyed\n");  // printed by the launcher, when it exits
}

TEST_P(LauncherTest, GivesEveryRankTheSameInput) {
  ::setenv("LAUNCH_TEST_INPUT", "four words for everyone", 1);
  const ProgramResult result = Job("read-input read-input").wait();
  ::unsetenv("LAUNCH_TEST_INPUT");
  EXPECT_EQ(result.output, "four words for everyone\nfour words for everyone\n");
  expect_clean(result);
}

TEST_P(LauncherTest, RanksRendezvousInAStoreWithoutAFile) {
  const ProgramResult result = testing::succeeded(Job(Words(4, "meet-in-the-store")).wait());
  expect_clean(result);
}

struct Failure {
  const char* what;
  Words actions;
  const char* message;
  int exit_code = 1;
  const char* fault = "";
};

TEST_P(LauncherTest, NamesTheRankToBlame) {
  for (const auto& [what, actions, message, exit_code, fault] : std::vector<Failure>{
           {"killed at its start", "wait wait wait wait", "2 was killed by signal 9 (Killed)", 1, "kill@start:2"},
           {"a reported failure", "wait fail wait", "1 failed at 1B3: out of memory"},
           {"an exception at the start", "wait wait", "1 failed at start: fault injected at start", 1, "throw@start:1"},
           {"a silent exit", "wait exit-7", "1 exited with code 7"},
           {"a wrong configuration", "wait refuse", "1 failed: 4 stages of 3 layers", 2},
           {"its victims ended first", "victim fail-after-the-victims victim", "1 failed at 1B3: out of memory"},
           {"a victim without a culprit", "victim wait", "0 failed at 0F2: connection closed by peer"},
           {"never the exit code of lost peers", "peer-lost", "0 lost a peer and ended"},
           {"reports and hangs", "ignore-term report-and-hang", "1 failed at 1B3: not a number"}}) {
    SCOPED_TRACE(what);
    const ProgramResult result = Job(actions, fault).wait();
    EXPECT_EQ(result.exit_code, exit_code);
    EXPECT_EQ(result.messages, fmt::format("chimera: rank {}\n", message));
    expect_clean(result);
  }
}

TEST_P(LauncherTest, ReportsACrash) {
  const ProgramResult result = Job("abort wait").wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.messages, HasSubstr("chimera: rank 0 was killed by signal 6 (Aborted)\n"));
}

TEST_P(LauncherTest, ReportsTheRankThatRanOutOfMemory) {
  const testing::Scratch root;
  for (const char* folder : {"proc/self", "sys/fs/cgroup/job"}) std::filesystem::create_directories(root.path(folder));
  root.write("proc/self/cgroup", "0::/job\n");
  root.write("proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n");
  root.write("sys/fs/cgroup/job/memory.events", "oom_kill 3\n");
  ::setenv("LAUNCH_TEST_ROOT", root.path("").c_str(), 1);
  const ProgramResult killed = Job("wait wait", "kill@start:0").wait();
  const ProgramResult out_of_memory = Job("wait run-out-of-memory").wait();
  ::unsetenv("LAUNCH_TEST_ROOT");
  EXPECT_THAT(killed.messages, HasSubstr("chimera: rank 0 was killed by signal 9 (Killed)\n"));
  EXPECT_EQ(
      out_of_memory.messages,
      "chimera: rank 1 was killed because memory ran out, by signal 9 from the kernel (see the kernel log, `dmesg`)\n");
  EXPECT_EQ(out_of_memory.exit_code, 1);
}

TEST_P(LauncherTest, KillsRanksThatIgnoreTermination) {
  Job job("ignore-term ignore-term");
  job.await_lines(2);
  job.send(SIGTERM);
  const ProgramResult result = job.wait();
  EXPECT_EQ(result.exit_code, 143);
  expect_clean(result);
}

class LauncherSignalTest : public ::testing::TestWithParam<std::pair<int, int>> {};

TEST_P(LauncherSignalTest, EndsAllRanks) {
  const auto [signal_number, exit_code] = GetParam();
  Job job("wait wait wait");
  job.await_lines(3);
  job.send(signal_number);
  const ProgramResult result = job.wait();
  EXPECT_EQ(result.exit_code, exit_code);
  EXPECT_THAT(result.messages, HasSubstr("chimera: ended by signal"));
  expect_clean(result);
}

/// Ctrl-C and `timeout` signal the whole group: ranks may be gone before the launcher looks.
TEST_P(LauncherSignalTest, BlamesNoRankWhenTheWholeGroupGetsIt) {
  const auto [signal_number, exit_code] = GetParam();
  Job job("wait wait wait");
  job.await_lines(3);
  job.send_to_all(signal_number);
  const ProgramResult result = job.wait();
  EXPECT_EQ(result.exit_code, exit_code);
  EXPECT_THAT(result.messages, ::testing::Not(HasSubstr("rank")));
  expect_clean(result);
}

INSTANTIATE_TEST_SUITE_P(, LauncherSignalTest, ::testing::Values(std::pair(SIGINT, 130), std::pair(SIGTERM, 143)));

/// Ranks that save when they are asked to.
class LauncherSaveTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { ::setenv("LAUNCH_TEST_SAVES", "1", 1); }
  void TearDown() override { ::unsetenv("LAUNCH_TEST_SAVES"); }
};
INSTANTIATE_TEST_SUITE_P(, LauncherSaveTest, ::testing::Values(SIGTERM, SIGUSR1, SIGUSR2, SIGHUP));

TEST_P(LauncherSaveTest, FirstSignalMakesRanksSave) {
  Job job("save-when-asked save-when-asked save-when-asked");
  job.await_lines(3);
  job.send(GetParam());
  const ProgramResult result = job.wait();
  EXPECT_EQ(result.exit_code, static_cast<int>(kSavedExit));
  EXPECT_THAT(result.messages, HasSubstr("saves after this step and ends; a second signal ends at once\n"));
  EXPECT_EQ(std::ranges::count(result.messages, '\n'), 1);
  expect_clean(result);
}

TEST_P(LauncherSaveTest, SecondSignalEndsAtOnce) {
  Job job("save-when-asked insist-on-the-end");
  job.await_lines(2);
  const auto asked = std::chrono::steady_clock::now();
  job.send(GetParam());
  const ProgramResult result = job.wait();
  EXPECT_EQ(result.exit_code, 128 + SIGTERM);
  EXPECT_THAT(result.messages, HasSubstr("chimera: ended by signal 15 (Terminated)\n"));
  EXPECT_GE(std::chrono::steady_clock::now() - asked, kSameSignal) << "what comes sooner is the same signal";
  expect_clean(result);
}

TEST_P(LauncherSaveTest, SignalBeforeTheFirstStepSavesNothing) {
  Job job("save-when-asked wait");
  job.await_lines(2);
  job.send(GetParam());
  const ProgramResult result = job.wait();
  EXPECT_EQ(result.exit_code, static_cast<int>(kSavedExit));
  EXPECT_THAT(result.messages, HasSubstr("chimera: ended by signal"));
  expect_clean(result);
}

TEST_P(LauncherTest, FailedJobRestarts) {
  ::setenv("LAUNCH_TEST_RESTARTS", "2", 1);
  const ProgramResult again = Job("fail-once ok").wait();
  const ProgramResult in_vain = Job("fail wait").wait();
  const ProgramResult refused = Job("refuse wait").wait();
  ::unsetenv("LAUNCH_TEST_RESTARTS");
  EXPECT_EQ(refused.exit_code, 2) << "what is wrong with the command line stays wrong";
  EXPECT_EQ(refused.messages, "chimera: rank 0 failed: 4 stages of 3 layers\n");
  const std::string failed = "chimera: rank 0 failed at 1B3: out of memory\n";
  EXPECT_EQ(in_vain.exit_code, 1);
  EXPECT_EQ(in_vain.messages, failed + "chimera: restart 1 of 2: once more\n" + failed +
                                  "chimera: restart 2 of 2: once more\n" + failed +
                                  "chimera: not restarted: it has failed before its first step 3 times in a row\n");
  EXPECT_EQ(again.messages, failed + "chimera: restart 1 of 2: once more\n");
}

TEST_P(LauncherTest, RanksLeaveInterruptsToTheLauncher) { EXPECT_EQ(Job("interrupt-itself").wait().exit_code, 0); }

TEST_P(LauncherTest, NoRankOutlivesAKilledLauncher) {
  Job job("ignore-term ignore-term ignore-term ignore-term");
  job.await_lines(4);
  job.send(SIGKILL);
  const ProgramResult result = job.wait();
  EXPECT_EQ(result.killed_by, SIGKILL);
  EXPECT_EQ(result.orphans, 4);
  EXPECT_FALSE(result.left_files);
}

TEST_P(LauncherTest, NoRankOutlivesALauncherKilledAtItsStart) {
  const ProgramResult result = Job("wait wait wait wait", "kill-launcher@start:1").wait();
  EXPECT_EQ(result.killed_by, SIGKILL);
  EXPECT_FALSE(result.left_files);
}

/// Some ranks have not yet set their parent-death signal: they must detect that they are orphans.
TEST_P(LauncherTest, NoRankOutlivesALauncherKilledAtAnyMoment) {
  for (int i = 0; i < 20; ++i) {
    Job job("wait wait wait");
    const auto moment = std::chrono::steady_clock::now() + std::chrono::microseconds(250 * i);
    while (std::chrono::steady_clock::now() < moment) ::sched_yield();
    job.send(SIGKILL);
    const ProgramResult result = job.wait();
    EXPECT_EQ(result.killed_by, SIGKILL);
  }
}

TEST(LaunchTest, RefusesANumberOfRanksOutOfRange) {
  EXPECT_THROW(static_cast<void>(launch({.ranks = 0, .arguments = {}})), ConfigError);
  EXPECT_THROW(static_cast<void>(launch({.ranks = 1025, .arguments = {}})), ConfigError);
}

TEST(LaunchTest, NamesAProgramThatCannotStart) {
  try {
    static_cast<void>(launch({.ranks = 1, .arguments = {}, .executable = "/no/such/program"}));
    FAIL() << "started a program that does not exist";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "cannot start /no/such/program: No such file or directory");
  }
}

class RankEnvironmentTest : public ::testing::Test {
 protected:
  void set(const std::string& name, const std::string& value) {
    names_.push_back(name);
    ::setenv(name.c_str(), value.c_str(), 1);
  }
  void TearDown() override {
    for (const std::string& name : names_) ::unsetenv(name.c_str());
  }

 private:
  std::vector<std::string> names_;
};

TEST_F(RankEnvironmentTest, IsAbsentOutsideARank) {
  EXPECT_EQ(rank_environment(), std::nullopt);
  report_failure({.op = "1B3", .message = "nobody hears this"});
}

TEST_F(RankEnvironmentTest, NamesAMissingVariable) {
  set("CHIMERA_LAUNCHER_PID", std::to_string(::getppid()));
  EXPECT_THAT([] { static_cast<void>(rank_environment()); },
              ::testing::ThrowsMessage<ConfigError>(HasSubstr("CHIMERA_RANK is not")));
}

TEST_F(RankEnvironmentTest, NamesAMalformedVariable) {
  set("CHIMERA_RANK", "0");
  set("CHIMERA_LAUNCHER_PID", "12x");
  EXPECT_THAT([] { static_cast<void>(rank_environment()); },
              ::testing::ThrowsMessage<ConfigError>(HasSubstr("CHIMERA_LAUNCHER_PID is '12x'")));
}

}  // namespace
}  // namespace chimera
