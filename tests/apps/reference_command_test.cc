// Man pages, shell completions and pages of the book, which tools/print_reference makes from `chimera reference`.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>

#include "support/paths.h"
#include "support/program.h"
#include "support/refusal.h"

namespace chimera::testing {
namespace {

using ::testing::HasSubstr;

/// Runs tools/print_reference once; returns one of its files.
std::string reference(const std::string& file) {
  static const Scratch scratch;
  static const bool is_written = [] {
    const std::string line = "'" + source_path("/tools/print_reference") + "' '" + scratch.path("all") +
                             "' --program '" + program_path() + "'";
    return std::system(line.c_str()) == 0;
  }();
  EXPECT_TRUE(is_written);
  return read_file(scratch.path("all") + "/" + file);
}

bool has_shell(const std::string& shell) { return std::system(("command -v " + shell + " > /dev/null").c_str()) == 0; }

/// Output of a shell for a script; empty if it fails.
std::string shell_output(const Scratch& scratch, const std::string& shell, const std::string& script) {
  const std::string output = scratch.path("output");
  const std::string line = shell + " " + scratch.write("script", script) + " > " + output + " 2>&1";
  const bool is_done = std::system(line.c_str()) == 0;
  while (::wait(nullptr) > 0) {  // the shell leaves processes, which would count as orphans of the next program
  }
  return is_done ? read_file(output) : "";
}

TEST(ReferenceCommandTest, TakesNoArguments) { expect_refusal({"reference bash", {"unexpected argument 'bash'"}}); }

TEST(ReferenceCommandTest, ManPagesListTheFlagsOfHelp) {
  const std::string program = reference("man/chimera.1");
  EXPECT_THAT(program, ::testing::StartsWith(".TH chimera 1 "));
  EXPECT_THAT(program, HasSubstr("\\fBsimulate\\fR\nSimulate a schedule"));
  const std::string simulate = reference("man/chimera-simulate.1");
  EXPECT_THAT(simulate, HasSubstr(".SS Costs\n.TP\n\\fB\\-\\-forward\\fR"));
  EXPECT_THAT(simulate, HasSubstr("chimera simulate 1f1b"));
  EXPECT_THAT(simulate, HasSubstr("More: /usr/share/doc/chimera/schedules.md"));
}

TEST(ReferenceCommandTest, BashCompletesSubcommandsFlagsAndWords) {
  const Scratch scratch;
  const std::string script = scratch.write("chimera.bash", reference("completions/chimera"));
  const auto completed = [&](const std::string& words, int at) {
    return shell_output(scratch, "bash",
                        "source " + script + "; COMP_WORDS=(" + words + "); COMP_CWORD=" + std::to_string(at) +
                            "; _chimera; echo \"${COMPREPLY[@]}\"\n");
  };
  EXPECT_EQ(completed("chimera simu", 1), "simulate\n");
  EXPECT_EQ(completed("chimera simulate --micro", 2), "--micro-batches\n");
  EXPECT_EQ(completed("chimera simulate --format ht", 3), "html\n");
  EXPECT_EQ(completed("chimera plan --schedules gem", 3), "gems\n");
  EXPECT_EQ(completed("chimera plan --schedules gems,gp", 3), "gems,gpipe\n");
  EXPECT_EQ(completed("chimera plan --machine p100", 3), "p100-aries\n");
  EXPECT_EQ(completed("chimera train --recipe nano", 3), "nanogpt-cpu\n");
  EXPECT_EQ(completed("chimera simulate gp", 2), "gpipe\n");
  EXPECT_EQ(completed("chimera model llama-m", 2), "llama-mini\n");
}

TEST(CompletionCommandTest, PrintsWhatTheBuildHasWritten) {
  const std::vector<std::pair<std::string, std::string>> shells = {
      {"bash", "complete -o bashdefault"}, {"zsh", "#compdef chimera"}, {"fish", "complete -c chimera"}};
  for (const auto& [shell, words] : shells) EXPECT_THAT(output_of({"completion", shell}), HasSubstr(words));
  expect_refusal({"completion bsh", {"unknown shell 'bsh'", "did you mean 'bash'?"}});
}

TEST(ReferenceCommandTest, ZshAcceptsItsCompletions) {
  if (!has_shell("zsh")) GTEST_SKIP() << "zsh is missing";
  const Scratch scratch;
  const std::string zsh = scratch.write("_chimera", reference("completions/_chimera"));
  const std::string script = "autoload -Uz compinit; compinit -u -D; source " + zsh + " && echo accepted\n";
  EXPECT_EQ(shell_output(scratch, "zsh -f", script), "accepted\n");
}

TEST(ReferenceCommandTest, FishAcceptsItsCompletions) {
  if (!has_shell("fish")) GTEST_SKIP() << "fish is missing";
  const Scratch scratch;
  const std::string fish = scratch.write("chimera.fish", reference("completions/chimera.fish"));
  const std::string completed = shell_output(scratch, "fish", "source " + fish + "; complete -C 'chimera simu'\n");
  EXPECT_THAT(completed, ::testing::StartsWith("simulate\t"));
}

TEST(ReferenceCommandTest, PagesOfTheBookHaveATableForEachGroup) {
  const std::string page = reference("markdown/checkpoint.md");
  EXPECT_THAT(page, ::testing::StartsWith("# chimera checkpoint\n"));
  EXPECT_THAT(page, HasSubstr("## chimera checkpoint list\n"));
  EXPECT_THAT(page, HasSubstr("**Output**\n\n| flag | what |\n| --- | --- |\n| `--format` text\\|json | "));
}

}  // namespace
}  // namespace chimera::testing
