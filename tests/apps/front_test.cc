// The program in front loads LibTorch where a subcommand needs it, and nowhere else.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/program.h"

namespace chimera::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// The loader's own account, on stderr, of every library that it looks for.
std::string libraries_of(const std::vector<std::string>& arguments) {
  const ProgramResult result = ProgramRun(arguments, {.environment = {"LD_DEBUG=libs"}}).wait();
  EXPECT_THAT(result.messages, HasSubstr("libc.so")) << "the loader says nothing";
  return result.messages;
}

TEST(FrontTest, SchedulingNeedsNoLibTorch) {
  EXPECT_THAT(libraries_of({"schedules"}), Not(HasSubstr("libtorch")));
  EXPECT_THAT(libraries_of({"simulate", "gpipe", "--stages", "2", "--micro-batches", "2"}), Not(HasSubstr("libtorch")));
  EXPECT_THAT(libraries_of({"--help"}), Not(HasSubstr("libtorch")));
  EXPECT_THAT(libraries_of({"trian"}), Not(HasSubstr("libtorch")));
}

TEST(FrontTest, KnowsTheSubcommandsItHasNotLoaded) {
  const std::string help = run_program({"--help"}).output;
  for (const char* name : {"train", "profile", "bench", "export"})
    EXPECT_THAT(help, HasSubstr(std::string("\n  ") + name + " "));
  EXPECT_THAT(run_program({"trian"}).messages, HasSubstr("train"));
}

}  // namespace
}  // namespace chimera::testing
