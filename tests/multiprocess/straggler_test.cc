
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "multiprocess/training.h"
#include "support/scratch.h"

namespace chimera::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

std::string answer_of_shell(const std::string& command) {
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  std::string text;
  for (int c = 0; (c = std::fgetc(pipe.get())) != EOF;) text += static_cast<char>(c);
  return text;
}

// Many steps: on a busy machine both ranks stall, but equally on average.
TEST(StragglerTest, ASlowRankIsNamedAtTheEnd) {
  for (const char* transport : {"processes", "threads"}) {
    const Scratch scratch;
    const std::string run = scratch.path("run");
    const ProgramResult result =
        ProgramRun(small_training(scratch) +
                       split("--model gpt2-tiny --stages 2 --steps 12 --checkpoint {} --transport {}", run, transport),
                   {.environment = {"CHIMERA_FAULT=slow@forward:1"}})
            .wait();
    EXPECT_EQ(result.exit_code, 0) << result.messages;
    const ProgramResult diagnosis = succeeded(ProgramRun({"diagnose", run}).wait());
    EXPECT_THAT(diagnosis.output, ContainsRegex("rank 1 is slow: the same ops take [0-9.]+ times as long as on other "
                                                "ranks, up to [0-9.]+ s a step"));
    EXPECT_THAT(diagnosis.output, Not(HasSubstr("rank 0 is slow")));
  }
}

TEST(StragglerTest, ALiveRunAndItsEndNameTheProcessThatBurnsTheCores) {
  const Scratch scratch;
  const std::string run = scratch.path("run");
  const pid_t busy = ::fork();
  if (busy == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (::getppid() > 0) {
    }
  }
  // The metrics are not in the folder of the run.
  ProgramRun training(
      small_training(scratch) + split("--model gpt2-tiny --stages 2 --steps 100000 --log-every 1 --checkpoint {}", run),
      {.ranks = 2});
  training.await_message("step 9/");
  const std::string answer = answer_of_shell(program_path() + " diagnose --format json " + run);
  training.send(training.process(), SIGTERM);
  ::kill(busy, SIGKILL);  // Its times remain until wait() reaps it
  const ProgramResult result = training.wait();
  // Another process of the machine may be busier.
  EXPECT_THAT(answer, ContainsRegex(R"("busiest_other": ".+ \(process [0-9]+\), [0-9]+ % of a core")"));
  EXPECT_EQ(result.exit_code, 75) << result.messages;
  EXPECT_THAT(result.output, ContainsRegex("other processes used [0-9]+ % of the cores meanwhile, most of all .+ "
                                           "\\(process [0-9]+\\), [0-9]+ % of a core"));
}

}  // namespace
}  // namespace chimera::testing
