// Every subcommand explains itself.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "support/program.h"

namespace chimera::testing {
namespace {

using ::testing::HasSubstr;

/// The names below "Subcommands:".
std::vector<std::string> subcommands() {
  const std::string help = run_program({"--help"}).output;
  std::istringstream lines(help.substr(std::min(help.find("Subcommands:\n"), help.size())));
  std::vector<std::string> names;
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line) && line.starts_with("  ")) {
    if (line[2] != ' ') names.push_back(line.substr(2, line.find(' ', 2) - 2));
  }
  return names;
}

TEST(HelpTest, EverySubcommandHasExamples) {
  const auto names = subcommands();
  EXPECT_THAT(names, ::testing::IsSupersetOf({"schedules", "schedule", "check", "simulate", "model"}));
  for (const std::string& name : names) {
    const ProgramResult result = run_program({name, "--help"});
    EXPECT_EQ(result.exit_code, 0) << name;
    EXPECT_EQ(result.messages, "") << name;
    EXPECT_THAT(result.output, HasSubstr("Examples:\n  chimera " + name)) << name;
  }
}

TEST(HelpTest, OfTheProgramListsTheExitCodes) {
  const ProgramResult result = run_program({"--help"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output, HasSubstr("Examples:\n"));
  EXPECT_THAT(result.output, HasSubstr("Exit codes: 0 success; 1 the answer is no"));
}

TEST(HelpTest, WithoutASubcommandIsAnError) {
  const ProgramResult result = run_program({});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.output, "");
  EXPECT_THAT(result.messages, HasSubstr("Subcommands:"));
}

TEST(HelpTest, SaysTheVersion) {
  EXPECT_THAT(run_program({"--version"}).output, ::testing::MatchesRegex("chimera [0-9.]+\n"));
}

}  // namespace
}  // namespace chimera::testing
