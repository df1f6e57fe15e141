
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "core/json.h"
#include "support/paths.h"
#include "training.h"

namespace chimera::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

const fs::path kRecipes = testing::source_path("/recipes");

json recipe_dry_run(const Words& flags) {
  return try_json(output_of("train --dry-run --format json --machine h100-80gb" + flags));
}

TEST(RecipeTest, EachTrainsOnTheStatedSamples) {
  std::map<std::string, std::int64_t> samples;  // per step
  for (const fs::directory_entry& entry : fs::directory_iterator(kRecipes)) {
    if (entry.path().extension() != ".toml") continue;
    const json run = recipe_dry_run({"--recipe", entry.path().string()});
    samples[entry.path().stem()] = run.value("mini_batch", 0);
    EXPECT_THAT(read_file(kRecipes / "README.md"), HasSubstr("`" + entry.path().filename().string() + "`"));
  }
  EXPECT_THAT(samples, UnorderedElementsAre(Pair("bert", 256), Pair("bert-lamb", 32'768), Pair("fine-tune", 16),
                                            Pair("gpt2", 480), Pair("llama-mini", 16), Pair("nanogpt-cpu", 12)));
}

TEST(RecipeTest, IsAnAliasOfConfig) {
  const std::string recipe = kRecipes / "nanogpt-cpu.toml";
  const json by_recipe = recipe_dry_run({"--recipe", recipe});
  EXPECT_EQ(by_recipe["stages"], recipe_dry_run({"--config", recipe})["stages"]);
  EXPECT_EQ(recipe_dry_run(split("--recipe {} --micro-batches 8", recipe))["mini_batch"], 24) << "flags count more";
  EXPECT_EQ(recipe_dry_run(split("--recipe {} --mini-batch 24", recipe))["mini_batch"], 24) << "another flag for it";
}

TEST(RecipeTest, FewerStepsShortenTheWarmUp) {
  for (const fs::directory_entry& entry : fs::directory_iterator(kRecipes)) {
    if (entry.path().extension() != ".toml") continue;
    const ProgramResult result =
        run_program(split("train --dry-run --machine h100-80gb --recipe {} --steps 20", entry.path().string()));
    EXPECT_EQ(result.exit_code, 0) << result.messages;
    EXPECT_THAT(result.messages, HasSubstr("--warmup "));
    EXPECT_THAT(result.output, HasSubstr("\nsteps = 20\n"));
  }
}

TEST(TrainingRecipeTest, SmallRecipeTrains) {
  const Scratch scratch;
  const ProgramResult result =
      run_program(split("train --recipe {} --data {} --steps 4 --warmup 2 --metrics {}", kRecipes / "nanogpt-cpu.toml",
                        scratch.write("text.txt", sample_text()), scratch.path("metrics")));
  ASSERT_EQ(result.exit_code, 0) << result.messages;
  const auto steps = read_metrics(scratch.path("metrics"));
  ASSERT_EQ(steps.size(), 4U);
  EXPECT_LT(steps[3]["loss"], steps[0]["loss"]);
  EXPECT_EQ(steps[0]["learning_rate"], 0.5e-3);
  EXPECT_TRUE(steps[3].contains("validation_loss"));
}

/// Trains a Llama with its own vocabulary, then fine-tunes it on another text; both runs find the tokenizer.
TEST(TrainingRecipeTest, FineTunesATrainedModel) {
  const Scratch scratch;
  const std::string text = scratch.write("text.txt", sample_text());
  const std::string tokenizer = scratch.path("learned.json");
  const std::string folder = scratch.path("model");
  ASSERT_EQ(run_program(split("tokenizer train --vocabulary 300 {} --output {}", text, tokenizer)).exit_code, 0);
  const auto few_steps = [&](const std::string& metrics) {
    return split("--data {} --validation {} --steps 2 --warmup 1 --metrics {}", text, text, scratch.path(metrics));
  };
  const ProgramResult trained =
      succeeded(run_program(split("train --recipe {} --tokenizer {} --vocabulary 300 --export {}",
                                  kRecipes / "llama-mini.toml", tokenizer, folder) +
                            few_steps("trained")));
  const ProgramResult tuned =
      run_program(split("train --recipe {} --from {}", kRecipes / "fine-tune.toml", folder) + few_steps("tuned"));
  ASSERT_EQ(tuned.exit_code, 0) << tuned.messages;
  const auto last_loss = [&](const std::string& metrics) {
    return read_metrics(scratch.path(metrics)).back()["validation_loss"].get<double>();
  };
  EXPECT_LT(last_loss("tuned"), last_loss("trained"));
}

}  // namespace
}  // namespace chimera::testing
