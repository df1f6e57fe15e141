#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <array>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "core/json.h"
#include "support/program.h"

namespace chimera::testing {
namespace {

using ::testing::HasSubstr;

Words with_help(Words command) {
  command.emplace_back("--help");
  return command;
}

/// Names below "Subcommands:" in the help of a command.
std::vector<std::string> subcommands(const Words& command = {}) {
  const std::string help = run_program(with_help(command)).output;
  std::istringstream lines(help.substr(std::min(help.find("Subcommands:\n"), help.size())));
  std::vector<std::string> names;
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line) && line.starts_with(" ")) {  // one blank: a heading
    if (line[1] == ' ' && line[2] != ' ') names.push_back(line.substr(2, line.find(' ', 2) - 2));
  }
  return names;
}

/// The command and all its subcommands. Commands of the training half have no subcommands and are slow to start.
std::vector<Words> commands_from(const Words& command) {
  std::vector<Words> commands = {command};
  if (needs_training_half(command)) return commands;
  for (const std::string& name : subcommands(command)) {
    Words inner = command;
    inner.push_back(name);
    for (Words& each : commands_from(inner)) commands.push_back(std::move(each));
  }
  return commands;
}

/// What `chimera reference` says of all commands.
nlohmann::json reference() { return read_json(run_program({"reference"}).output); }

std::string last_name(const nlohmann::json& command) {
  const std::string name = command.at("name");
  return name.substr(name.rfind(' ') + 1);
}

/// The arguments of every --help: of the program, its subcommands and theirs.
std::vector<Words> all_helps() {
  std::vector<Words> helps;
  for (const Words& command : commands_from({})) helps.push_back(with_help(command));
  return helps;
}

std::string in_words(const Words& arguments) {
  std::string words;
  for (const std::string& argument : arguments) words += (words.empty() ? "" : " ") + argument;
  return words;
}

/// Output of the program if COLUMNS gives the terminal's width; `columns` may be empty.
std::string help_at(const Words& arguments, const std::string& columns) {
  const bool is_copy = needs_training_half(arguments);
  return ProgramRun(arguments, {.environment = {"COLUMNS=" + columns}, .is_copy = is_copy}).wait().output;
}

std::size_t longest_line(const std::string& text) {
  std::istringstream lines(text);
  std::size_t longest = 0;
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
  return longest;
}

/// All words in order, without the backslashes that continue examples.
std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(std::regex_replace(text, std::regex(R"( \\\n)"), "\n"));
  return {std::istream_iterator<std::string>(stream), {}};
}

TEST(HelpTest, EverySubcommandHasExamples) {
  const auto commands = commands_from({});
  EXPECT_THAT(commands, ::testing::IsSupersetOf({Words("schedules"), Words("simulate"), Words("model"),
                                                 Words("checkpoint verify"), Words("tokenizer train")}));
  for (const Words& command : commands) {
    const std::string name = in_words(command);
    const ProgramResult result = run_program(with_help(command));
    EXPECT_EQ(result.exit_code, 0) << name;
    EXPECT_EQ(result.messages, "") << name;
    EXPECT_THAT(result.output, HasSubstr("Examples:\n  chimera " + name)) << name;
  }
}

TEST(HelpTest, ListsAllCommandsInGroups) {
  const std::vector<std::string> names = subcommands();
  EXPECT_EQ(names.front(), "train");
  EXPECT_LE(names.size(), 24U);
  std::vector<std::string> all;
  const nlohmann::json program = reference();
  for (const nlohmann::json& command : program.at("subcommands")) all.push_back(last_name(command));
  EXPECT_THAT(all, ::testing::UnorderedElementsAreArray(names));
}

TEST(HelpTest, HasAtMost60LinesAt100Columns) {
  for (const auto& arguments : all_helps()) {
    const std::string help = help_at(arguments, "100");
    // The options that most people type are more for training than for any other command.
    const bool trains = arguments == with_help({"train"});
    EXPECT_LE(std::ranges::count(help, '\n'), trains ? 80 : 60) << in_words(arguments);
    EXPECT_THAT(help.substr(help.rfind("\n\n")), ::testing::StartsWith("\n\nMore: ")) << in_words(arguments);
  }
}

TEST(HelpTest, HasAtMostSixExamples) {
  for (const auto& arguments : all_helps()) {
    const std::string help = help_at(arguments, "120");
    std::istringstream lines(help.substr(help.find("Examples:\n")));
    std::int64_t examples = 0;
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line) && line.starts_with("  ")) {
      if (!line.starts_with("    ") && !line.starts_with("  #")) ++examples;  // not a continuation or a comment
    }
    EXPECT_LE(examples, 6) << in_words(arguments);
  }
}

/// The flags of a subcommand and of those below it.
std::vector<nlohmann::json> flags_below(const nlohmann::json& command) {
  std::vector<nlohmann::json> flags = command.at("flags");
  for (const nlohmann::json& inner : command.at("subcommands")) {
    for (nlohmann::json& flag : flags_below(inner)) flags.push_back(std::move(flag));
  }
  return flags;
}

std::vector<nlohmann::json> reference_flags(const std::string& subcommand) {
  const nlohmann::json program = reference();
  for (const nlohmann::json& command : program.at("subcommands")) {
    if (last_name(command) == subcommand) return flags_below(command);
  }
  return {};
}

TEST(HelpTest, HelpAllHasEveryFlag) {
  for (const std::string& subcommand : subcommands()) {
    std::string help;
    for (Words command : commands_from({subcommand})) {
      command.emplace_back("--help-all");
      help += run_program(command).output;
    }
    std::vector<std::string> flags;
    for (const nlohmann::json& flag : reference_flags(subcommand)) {
      for (const std::string name : flag.at("names")) {
        if (name.starts_with("--")) flags.push_back(name);
      }
    }
    EXPECT_THAT(flags, ::testing::IsSupersetOf({"--help", "--help-all"})) << subcommand;
    for (const std::string& flag : flags) {
      const std::regex entry("\n  [-,a-z0-9]*" + flag + "[, \n]");
      EXPECT_TRUE(std::regex_search(help, entry)) << subcommand << " " << flag;
    }
  }
}

TEST(HelpTest, OmitsRareFlagsAndNamesHelpAll) {
  const std::string help = help_at("plan --help", "100");
  EXPECT_THAT(help, HasSubstr("\n  --workers N "));
  EXPECT_THAT(help, ::testing::Not(HasSubstr("\n  --slices ")));
  EXPECT_THAT(help, HasSubstr("\nMore: `chimera plan --help-all` ("));
  EXPECT_THAT(help_at("plan --help-all", "100"), HasSubstr("\n  --slices K"));
  EXPECT_EQ(help_at("check --help", ""), help_at("check --help-all", ""));  // fits on a page
}

TEST(HelpTest, ShortFlagShowsTheSame) {
  EXPECT_EQ(run_program({"-h"}).output, run_program({"--help"}).output);
  EXPECT_EQ(run_program("simulate -h").output, run_program("simulate --help").output);
  EXPECT_EQ(run_program("checkpoint list -h").output, run_program("checkpoint list --help").output);
}

TEST(HelpTest, ListsEachDefaultOfAShapeFlagOnce) {
  std::string page;
  for (const nlohmann::json& flag : reference_flags("schedule")) page += std::string(flag.at("description")) + "\n";
  EXPECT_TRUE(std::regex_search(page, std::regex("default 2; 1 for [a-z]")));
  EXPECT_FALSE(std::regex_search(page, std::regex("default [0-9]+, [0-9]")));
}

TEST(HelpTest, NoLineIsLongerThanTheTerminalIsWide) {
  const std::vector<std::pair<std::string, std::size_t>> widths = {{"80", 80},   {"97", 97}, {"120", 120}, {"40", 80},
                                                                   {"300", 120}, {"", 100},  {"wide", 100}};
  for (const auto& arguments : all_helps()) {
    for (const auto& [columns, width] : widths)
      EXPECT_LE(longest_line(help_at(arguments, columns)), width) << in_words(arguments) << ", COLUMNS=" << columns;
  }
  EXPECT_GT(longest_line(help_at("plan --help", "120")), 110U);  // uses the available width
}

TEST(HelpTest, SaysTheSameAtAnyWidth) {
  for (const auto& arguments : all_helps()) {
    std::vector<std::string> narrow = words_of(help_at(arguments, "80"));
    std::vector<std::string> wide = words_of(help_at(arguments, "120"));
    // An example's comment is above the example if the line is too long for both.
    std::ranges::sort(narrow);
    std::ranges::sort(wide);
    EXPECT_EQ(narrow, wide) << in_words(arguments);
  }
}

TEST(HelpTest, ContinuesLongExamplesAsAShellDoes) {
  const std::string help = help_at("plan --help", "80");
  EXPECT_THAT(help, HasSubstr("  chimera plan --model bert-48 --workers 32 --mini-batch 512 --memory 16 \\\n"
                              "    --machine p100-aries\n"));
}

/// All output written to the other side of a terminal, which is closed first.
std::string read_until_closed(int terminal, FileDescriptor program_side) {
  program_side = FileDescriptor();
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t count = 0; (count = ::read(terminal, buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<std::size_t>(count));
  return text;  // read then returns EIO because the other side is closed
}

TEST(HelpTest, TakesTheWidthOfTheTerminal) {
  int terminal = -1;
  int program_side = -1;
  const winsize size{.ws_row = 24, .ws_col = 91, .ws_xpixel = 0, .ws_ypixel = 0};
  ASSERT_EQ(::openpty(&terminal, &program_side, nullptr, nullptr, &size), 0);
  FileDescriptor ends[] = {FileDescriptor(terminal), FileDescriptor(program_side)};
  ProgramRun("check --help", {.environment = {"COLUMNS="}, .output = program_side}).wait();
  std::string shown = read_until_closed(terminal, std::move(ends[1]));
  std::erase(shown, '\r');
  EXPECT_EQ(shown, help_at("check --help", "91"));
  EXPECT_NE(shown, help_at("check --help", ""));
}

TEST(HelpTest, FlagsHaveHeadings) {
  EXPECT_THAT(help_at("simulate --help", ""), HasSubstr("\nCosts:\n  --forward X"));
  for (const auto& arguments : all_helps())
    EXPECT_THAT(help_at(arguments, ""), ::testing::Not(HasSubstr("\nOptions:\n"))) << in_words(arguments);
}

TEST(HelpTest, NamesArgumentsInCapitals) {
  const std::regex usage(R"(Usage: chimera[a-z -]*( \[FLAGS\])?( \[?[A-Z]+(\.\.\.)?\]?)*\n)");
  for (const auto& arguments : all_helps())
    EXPECT_TRUE(std::regex_search(help_at(arguments, ""), usage)) << in_words(arguments);
}

TEST(HelpTest, ListsTheExitCodes) {
  const std::string result = output_of({"--help"});
  EXPECT_THAT(result, HasSubstr("Examples:\n"));
  EXPECT_THAT(result, HasSubstr("Exit codes: 0 success; 1 the answer is no"));
}

TEST(HelpTest, WithoutASubcommandIsAnError) {
  const ProgramResult result = run_program({});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.output, "");
  EXPECT_THAT(result.messages, HasSubstr("Subcommands:"));
}

TEST(HelpTest, SaysTheVersion) {
  EXPECT_THAT(run_program({"--version"}).output,
              ::testing::MatchesRegex("chimera [0-9.]+\ncommit: [^\n]+\nbuilt: [^\n]+\ntraining half: [^\n]+\n"));
}

TEST(HelpTest, UsualWordsForHelpAndVersionAreFlags) {
  EXPECT_EQ(run_program({"help"}).output, run_program({"--help"}).output);
  EXPECT_EQ(run_program("help simulate").output, run_program("simulate --help").output);
  EXPECT_EQ(run_program("help checkpoint list").output, run_program("checkpoint list --help").output);
  EXPECT_EQ(run_program("help train").output, run_program("train --help").output);
  for (const char* word : {"version", "-v", "-V"})
    EXPECT_EQ(run_program({word}).output, run_program({"--version"}).output) << word;
}

}  // namespace
}  // namespace chimera::testing
