// Ctrl-C and SIGTERM, and the sockets on which a run listens.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <set>
#include <sstream>

#include "training.h"

namespace chimera::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

/// More steps than any test waits for, each long enough to be interrupted.
Words long_training(const Scratch& scratch) {
  return small_training(scratch) + "--model gpt2-tiny --stages 2 --micro-batches 16 --steps 100000 --validate-every 1";
}

struct Interruption {
  std::string name;
  Words flags;
  int ranks;  // processes besides the launcher
  int signal_number;
  bool to_all;  // true for a terminal's Ctrl-C, false for `timeout`
};

class TrainingSignalTest : public ::testing::TestWithParam<Interruption> {};

TEST_P(TrainingSignalTest, EndsTheRunInItsMiddleWithTheShellsExitCode) {
  const Interruption& how = GetParam();
  const Scratch scratch;
  ProgramRun run(long_training(scratch) + how.flags, {.ranks = how.ranks});
  run.await_message("step 2/");
  if (how.to_all)
    run.send_to_all(how.signal_number);
  else
    run.send(run.process(), how.signal_number);
  const ProgramResult result = run.wait();
  EXPECT_EQ(result.exit_code, 128 + how.signal_number);
  expect_clean(result);
  EXPECT_THAT(complaints(result), SizeIs(how.ranks > 0 ? 1 : 0));
  EXPECT_THAT(complaints(result), Each(HasSubstr("chimera: ended by signal")));
  const std::size_t steps = read_metrics(scratch.path("metrics.jsonl")).size();
  EXPECT_GE(steps, 2U);
  EXPECT_LT(steps, 100000U) << "the signal came in the middle";
}

std::vector<Interruption> interruptions() {
  std::vector<Interruption> all;
  for (const auto& [kind, flags, ranks] :
       std::initializer_list<std::tuple<std::string, Words, int>>{{"Processes", {}, 2},
                                                                  {"Threads", "--transport threads", 0},
                                                                  {"Unpipelined", "--schedule none --threads 1", 0}}) {
    for (const bool to_all : {false, true}) {
      const std::string scope = to_all ? "AllProcesses" : "OneProcess";
      all.push_back({kind + "InterruptOf" + scope, flags, ranks, SIGINT, to_all});
      all.push_back({kind + "TerminationOf" + scope, flags, ranks, SIGTERM, to_all});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(, TrainingSignalTest, ::testing::ValuesIn(interruptions()),
                         [](const auto& how) { return how.param.name; });

TEST(TrainingEndTest, ARunThatWouldOnlyExportSaysThatItKeepsNothing) {
  for (const Words flags : {"", "--transport threads"}) {
    for (const int number : {SIGTERM, SIGHUP}) {
      const Scratch scratch;
      ProgramRun run(long_training(scratch) + flags + Words{"--export", scratch.path("model")});
      run.await_message("step 2/");
      run.send(run.process(), number);
      const ProgramResult result = run.wait();
      EXPECT_EQ(result.exit_code, 128 + number);
      EXPECT_THAT(result.messages, HasSubstr("chimera: the model is not kept: --export writes it after the last step"));
      EXPECT_FALSE(std::filesystem::exists(scratch.path("model"))) << "no empty folder stays";
    }
  }
}

TEST(TrainingEndTest, ARunInOneProcessSaysThatABatchSystemsSignalSavesNothing) {
  const Scratch scratch;
  ProgramRun run(long_training(scratch) + "--transport threads");
  run.await_message("step 2/");
  run.send(run.process(), SIGUSR2);
  EXPECT_THAT(run.wait().messages, HasSubstr("chimera: ended by a signal; nothing is saved without --checkpoint\n"));
}

/// Inodes of the open sockets of a process.
std::set<std::string> sockets_of(pid_t process) {
  std::set<std::string> inodes;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
  }
  return inodes;
}

/// Local addresses, in hexadecimal, on which these sockets listen.
std::vector<std::string> listening_addresses(const std::set<std::string>& inodes) {
  std::vector<std::string> addresses;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6", "/proc/net/udp", "/proc/net/udp6"}) {
    for (const std::string& line : lines_of(read_file(table))) {
      std::istringstream fields(line);
      std::string slot, local, remote, state, queues, timer, retransmits, user, timeout, inode;
      fields >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeout >> inode;
      const bool listens = state == "0A" || std::string(table).find("udp") != std::string::npos;
      if (listens && inodes.contains(inode)) addresses.push_back(local.substr(0, local.find(':')));
    }
  }
  return addresses;
}

TEST(TrainingNetworkTest, ListensOnLoopbackOnly) {
  const Scratch scratch;
  ProgramRun run(long_training(scratch), {.ranks = 2});
  run.await_message("step 2/");
  for (const pid_t process : {run.process(), run.rank(0), run.rank(1)}) {
    const auto addresses = listening_addresses(sockets_of(process));
    EXPECT_THAT(addresses, Each("0100007F")) << "127.0.0.1, as the kernel writes it";
    EXPECT_EQ(addresses.empty(), process == run.process()) << "ranks meet over TCP, the launcher needs none";
  }
  run.send(run.process(), SIGTERM);
  EXPECT_EQ(run.wait().exit_code, 143);
}

}  // namespace
}  // namespace chimera::testing
