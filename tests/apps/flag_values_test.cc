// Values of flags from the command line, a configuration file and a plan, and the command line of a rank.

#include "../apps/flags/config_file.h"

#include <gmock/gmock.h>

#include "core/error.h"

namespace chimera::apps {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Words = std::vector<std::string>;

/// A command with one flag of each kind that `chimera train` has.
struct Command {
  CLI::App app{"train"};
  std::string schedule = "chimera";
  std::int64_t stages = 4;
  double rate = 0.1;
  bool shards = false;
  std::string prompt;
  Words data;
  std::string config;

  explicit Command(const Words& words = {}) {
    app.add_option("--schedule", schedule)->take_last();
    app.add_option("--stages", stages)->take_last();
    app.add_option("--learning-rate", rate)->take_last();
    app.add_flag("--shard-optimizer", shards)->take_last();
    app.add_option("--prompt", prompt)->take_last();
    app.add_option_function<Words>("--data", [this](const Words& given) { data = given; })->trigger_on_parse();
    app.add_option("--config,--recipe", config)->take_last();
    app.parse(Words(words.rbegin(), words.rend()));
  }
};

TEST(FlagValuesTest, TheCommandLineOverridesTheFileWhichOverridesDefaults) {
  Command command({"--stages", "2", "--shard-optimizer=false"});
  merge_config_text(command.app, "stages = 8\nlearning-rate = 0.5\nshard-optimizer = true\n", "run.toml");
  EXPECT_EQ(command.stages, 2) << "command line";
  EXPECT_FALSE(command.shards) << "command line";
  EXPECT_EQ(command.rate, 0.5) << "file";
  EXPECT_EQ(command.schedule, "chimera") << "default";
}

TEST(FlagValuesTest, AFlagOfTheFileIsGiven) {
  Command command;
  merge_config_text(command.app, "stages = 8\nshard-optimizer = false\n", "run.toml");
  EXPECT_EQ(command.app.get_option("--stages")->count(), 1U);
  EXPECT_EQ(command.app.get_option("--shard-optimizer")->count(), 0U) << "false is the same as no flag";
  EXPECT_EQ(command.app.get_option("--schedule")->count(), 0U);
}

TEST(FlagValuesTest, ASetFlagReplacesEarlierValues) {
  Command command({"--schedule", "gpipe", "--schedule", "1f1b"});
  EXPECT_EQ(command.schedule, "1f1b");
  set_flag(command.app, "schedule", "zb-h1");
  EXPECT_EQ(command.schedule, "zb-h1");
  EXPECT_THAT(given_arguments(command.app), ElementsAre("--schedule=zb-h1"));
}

TEST(FlagValuesTest, WordsOfARankHoldAllValues) {
  Command command({"--stages", "2", "--stages", "8", "--prompt", "", "--data", "0.7:a", "0.3:b"});
  merge_config_text(command.app, "schedule = \"--odd name\"\nshard-optimizer = true\nlearning-rate = 1e-3\n",
                    "run.toml");
  const Words words = given_arguments(command.app);
  EXPECT_THAT(words, ElementsAre("--schedule=--odd name", "--stages=8", "--learning-rate=0.001",
                                 "--shard-optimizer=true", "--prompt", "", "--data=0.7:a 0.3:b"));
  Command rank(words);
  EXPECT_EQ(rank.schedule, "--odd name");
  EXPECT_EQ(rank.stages, 8);
  EXPECT_EQ(rank.rate, 0.001);
  EXPECT_TRUE(rank.shards);
  EXPECT_EQ(rank.prompt, "");
  EXPECT_THAT(rank.data, ElementsAre("0.7:a 0.3:b"));
  EXPECT_EQ(given_arguments(rank.app), words);
}

TEST(FlagValuesTest, NoFlagHasNoWords) { EXPECT_THAT(given_arguments(Command().app), IsEmpty()); }

TEST(FlagValuesTest, TheFileCannotNameAnotherFile) {
  Command command;
  EXPECT_THROW(merge_config_text(command.app, "config = \"other.toml\"\n", "run.toml"), ConfigError);
  EXPECT_THROW(merge_config_text(command.app, "recipe = \"other.toml\"\n", "run.toml"), ConfigError);
}

TEST(FlagValuesTest, UnknownNamesSuggestFlagsOfThisCommand) {
  const Command command;
  EXPECT_EQ(unknown_flag(command.app, "flag", "lr"), "unknown flag '--lr'; did you mean '--learning-rate'?");
  EXPECT_EQ(unknown_flag(command.app, "flag", "pp"), "unknown flag '--pp'; did you mean '--stages'?");
  EXPECT_EQ(unknown_flag(command.app, "flag", "stagse"), "unknown flag '--stagse'; did you mean '--stages'?");
  EXPECT_EQ(unknown_flag(command.app, "flag", "tp"), "unknown flag '--tp'; see --help-all") << "not in this command";
  EXPECT_EQ(unknown_flag(command.app, "flag", "recipes"), "unknown flag '--recipes'; did you mean '--recipe'?");
  EXPECT_EQ(unknown_flag(command.app, "key", "recipes"), "unknown key 'recipes'; see --help-all");
  EXPECT_EQ(unknown_flag(command.app, "key", "lr"), "unknown key 'lr'; did you mean 'learning-rate'?");
}

TEST(FlagValuesTest, ListsOfAFileAreJoinedAndSectionsRefused) {
  Command command;
  merge_config_text(command.app, "schedule = [\"a\", \"b\"]\n", "run.toml");
  EXPECT_EQ(command.app.get_option("--schedule")->results(), std::vector<std::string>{"a,b"});
  EXPECT_THAT(to_toml(command.app), ::testing::HasSubstr("schedule = \"a,b\"\n"));
  for (const auto& [text, words] : {std::pair("[train]\nstages = 4\n", "run.toml:1: [train] is a section"),
                                    std::pair("[[train]]\nstages = 4\n", "run.toml:1: [train] is a section"),
                                    std::pair("schedule = [[1]]\n", "has a list in a list"),
                                    std::pair("report-stragglers = true\n", "is now `chimera diagnose`")}) {
    const std::string file = text;
    EXPECT_THAT([&] { merge_config_text(command.app, file, "run.toml"); },
                ::testing::ThrowsMessage<ConfigError>(::testing::HasSubstr(words)));
  }
}

TEST(FlagValuesTest, AnOverriddenValueOfTheFileStillHasTheRightType) {
  Command command({"--shard-optimizer"});
  EXPECT_THROW(merge_config_text(command.app, "shard-optimizer = 3\n", "run.toml"), ConfigError);
}

}  // namespace
}  // namespace chimera::apps
