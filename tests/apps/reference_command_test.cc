// Man pages and shell completions agree with --help, and shells accept them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "support/program.h"
#include "support/refusal.h"

namespace chimera::testing {
namespace {

using ::testing::HasSubstr;

std::string reference(const std::string& kind, const std::vector<std::string>& more = {}) {
  std::vector<std::string> words = {"reference", kind};
  words.insert(words.end(), more.begin(), more.end());
  const ProgramResult result = run_program(words);
  EXPECT_EQ(result.exit_code, 0) << result.messages;
  return result.output;
}

/// Output of a shell for a script; empty if the shell is not installed.
std::string shell_output(const Scratch& scratch, const std::string& shell, const std::string& script) {
  const std::string output = scratch.path("output");
  const std::string line = "command -v " + shell + " > /dev/null && " + shell + " " + scratch.write("script", script) +
                           " > " + output + " 2>&1";
  return std::system(line.c_str()) == 0 ? read_file(output) : "";
}

TEST(ReferenceCommandTest, ManPagesListTheFlagsOfHelp) {
  const std::string program = reference("man");
  EXPECT_THAT(program, ::testing::StartsWith(".TH chimera 1 "));
  EXPECT_THAT(program, HasSubstr("\\fBsimulate\\fR\nSimulate a schedule"));
  const std::string simulate = reference("man", {"--command", "simulate"});
  EXPECT_THAT(simulate, HasSubstr(".SS Costs\n.TP\n\\fB\\-\\-forward\\fR"));
  EXPECT_THAT(simulate, HasSubstr("chimera simulate 1f1b"));
}

TEST(ReferenceCommandTest, BashCompletesSubcommandsFlagsAndWords) {
  const Scratch scratch;
  const std::string script = scratch.write("chimera.bash", reference("bash"));
  const auto completed = [&](const std::string& words, int at) {
    return shell_output(scratch, "bash",
                        "source " + script + "; COMP_WORDS=(" + words + "); COMP_CWORD=" + std::to_string(at) +
                            "; _chimera; echo \"${COMPREPLY[@]}\"\n");
  };
  EXPECT_EQ(completed("chimera simu", 1), "simulate\n");
  EXPECT_EQ(completed("chimera simulate --micro", 2), "--micro-batches\n");
  EXPECT_EQ(completed("chimera simulate --format ht", 3), "html\n");
  EXPECT_EQ(completed("chimera plan --schedules gem", 3), "gems\n");
  EXPECT_EQ(completed("chimera simulate gp", 2), "gpipe\n");
  EXPECT_EQ(completed("chimera model llama-m", 2), "llama-mini\n");
}

TEST(ReferenceCommandTest, ZshAndFishAcceptTheirCompletions) {
  const Scratch scratch;
  const std::string zsh = scratch.write("_chimera", reference("zsh"));
  EXPECT_EQ(shell_output(scratch, "zsh", "zsh -n " + zsh + "\n"), "");
  const std::string fish = scratch.write("chimera.fish", reference("fish"));
  const std::string completed = shell_output(scratch, "fish", "source " + fish + "; complete -C 'chimera simu'\n");
  EXPECT_THAT(completed, ::testing::AnyOf("", ::testing::StartsWith("simulate\t")));
}

TEST(ReferenceCommandTest, WritesAFolderOfEverything) {
  const Scratch scratch;
  reference("all", {"--folder", scratch.path("all")});
  for (const char* file : {"man/chimera.1", "man/chimera-plan.1", "markdown/plan.md", "completions/chimera",
                           "completions/_chimera", "completions/chimera.fish"}) {
    EXPECT_NE(read_file(scratch.path("all") + "/" + file), "") << file;
  }
  const std::string page = scratch.write("all/man/chimera-plan.1", "a page of another program");
  std::filesystem::remove(scratch.path("all/completions/chimera"));
  expect_refusal({{"reference", "all", "--folder", scratch.path("all")}, {"exists already", "--overwrite"}});
  EXPECT_EQ(read_file(page), "a page of another program");
  EXPECT_FALSE(std::filesystem::exists(scratch.path("all/completions/chimera")));
  reference("all", {"--folder", scratch.path("all"), "--overwrite"});
  EXPECT_NE(read_file(page), "a page of another program");
}

TEST(ReferenceCommandTest, RefusesUnsupportedFormats) {
  expect_refusal({{"reference", "ksh"}, {"ksh", "zsh"}});
  expect_refusal({{"reference", "man", "--command", "simulat"}, {"simulat", "simulate"}});
  expect_refusal({{"reference", "bash", "--command", "simulate"}, {"--command goes with man and markdown"}});
  expect_refusal({{"reference", "all"}, {"--folder DIR"}});
  expect_refusal({{"reference", "bash", "--overwrite"}, {"--overwrite", "no file"}});
}

}  // namespace
}  // namespace chimera::testing
