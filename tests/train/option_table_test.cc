#include "train/setup/option_table.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

const Option& option_called(const std::vector<Option>& all, std::string_view flag) {
  const auto found = std::ranges::find_if(all, [&](const Option& option) { return option.flag == flag; });
  if (found == all.end()) throw Error(fmt::format("no option {}", flag));
  return *found;
}

std::vector<std::string> recorded_keys(const TrainOptions& options) {
  std::vector<std::string> keys;
  for (const Option& option : declared_values(options)) {
    if (option.has(kRecorded)) keys.push_back(option.key());
  }
  return keys;
}

TEST(OptionTableTest, EachFlagIsDeclaredOnce) {
  std::set<std::string> flags;
  for (const Option& option : declared_values({})) EXPECT_TRUE(flags.insert(option.flag).second) << option.flag;
  EXPECT_GT(flags.size(), 80U);
}

/// Checkpoints of earlier versions have these keys. Another key would be reported as a difference.
TEST(OptionTableTest, CheckpointsKeepTheirHyperparameters) {
  TrainOptions options;
  EXPECT_THAT(recorded_keys(options),
              UnorderedElementsAre("steps", "learning_rate", "min_learning_rate", "learning_rate_shape", "warmup",
                                   "cooldown", "cooldown_shape", "weight_decay", "decay", "beta1", "beta2", "epsilon",
                                   "clip", "dropout", "dtype", "reduction"));
  options.updates.optimizer.kind = OptimizerKind::Muon;
  options.numbers.dtype = DataType::BFloat16;
  EXPECT_THAT(recorded_keys(options),
              ::testing::IsSupersetOf({"momentum", "muon_adjust", "muon_dtype", "muon_exclude"}));
  EXPECT_EQ(option_called(declared_values(options), "--muon-dtype").value, "bfloat16") << "the type of the layers";
}

TEST(OptionTableTest, TextsAreParsedIntoTheOptions) {
  TrainOptions options;
  const std::vector<Option> all = declare_options(options);
  for (const auto& [flag, text] : std::vector<std::pair<const char*, const char*>>{{"--steps", "7"},
                                                                                   {"--cooldown", "3"},
                                                                                   {"--dropout", "0.5"},
                                                                                   {"--tf32", "true"},
                                                                                   {"--prompt", "The"},
                                                                                   {"--documents", "split"},
                                                                                   {"--muon-dtype", "float64"},
                                                                                   {"--save-every", "10min"},
                                                                                   {"--spike", "5sigma"}}) {
    option_called(all, flag).take(text);
  }
  EXPECT_EQ(options.updates.steps, 7);
  EXPECT_EQ(options.updates.learning_rate.cooldown, 3);
  EXPECT_EQ(options.model.dropout, 0.5);
  EXPECT_TRUE(options.numbers.tf32);
  EXPECT_EQ(options.data.prompt, "The");
  EXPECT_EQ(options.data.documents, Documents::Split);
  EXPECT_EQ(options.updates.optimizer.muon.iterations, DataType::Float64);
  EXPECT_EQ(options.checkpoint.every.seconds, 600);
  EXPECT_EQ(options.recovery.spike, 5);
  EXPECT_EQ(option_called(declared_values(options), "--steps").value, 7);
}

TEST(OptionTableTest, NumbersOutOfRangeAreRefused) {
  int checked = 0;
  for (const Option& ranged : declared_values({})) {
    if (ranged.traits.most == 0 || ranged.traits.most > 1e12) continue;
    TrainOptions options;
    option_called(declare_options(options), ranged.flag).take(fmt::format("{:.0f}", ranged.traits.most + 1));
    const std::vector<Option> all = declared_values(options);
    EXPECT_THAT([&] { option_called(all, ranged.flag).require_in_range(); },
                ::testing::ThrowsMessage<ConfigError>(HasSubstr(std::string(ranged.flag) + " must be ")));
    ++checked;
  }
  EXPECT_GT(checked, 15);
}

TEST(OptionTableTest, HelpSaysTheDefault) {
  const std::vector<Option> all = declared_values({});
  EXPECT_THAT(option_called(all, "--steps").help, HasSubstr("(default 100)"));
  EXPECT_THAT(option_called(all, "--epsilon").help, HasSubstr("(default 1e-8)"));
  EXPECT_THAT(option_called(all, "--documents").help, HasSubstr("(default pack)"));
  for (const Option& option : all) EXPECT_EQ(option.help.find("{}"), std::string::npos) << option.flag;
}

TEST(OptionTableTest, OptionsSayWhatTheyNeed) {
  TrainOptions options;
  EXPECT_FALSE(option_called(declared_values(options), "--keep").has_effect);
  options.checkpoint.folder = "saves";
  EXPECT_TRUE(option_called(declared_values(options), "--keep").has_effect);
}

}  // namespace
}  // namespace chimera
