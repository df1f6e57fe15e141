// Folders for transformers, written and read by multi-process runs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/json.h"
#include "support/refusal.h"
#include "training.h"

namespace chimera::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

/// `small_training` with D = 2 of a model that is exported to `folder`.
Words exporting(const Scratch& scratch, const std::string& model, const std::string& folder) {
  return small_training(scratch) +
         split("--model {} --schedule chimera --stages 2 --micro-batches 2 --steps 2 --validate-every 2 --export {}",
               model, folder);
}

/// One step from a folder that changes no weight.
Words going_on(const Scratch& scratch, const std::string& folder, const Words& schedule, const std::string& metrics) {
  return small_training(scratch, metrics) + schedule +
         split(
             "--from {} --micro-batches 2 --steps 1 --validate-every 1 --optimizer sgd --weight-decay 0 "
             "--learning-rate 1e-300",
             folder);
}

/// Other schedules and stage counts give the same validation loss for the same weights.
TEST(TrainingFolderTest, RunContinuesFromAnExportedFolder) {
  for (const char* model : {"gpt2-tiny", "bert-tiny"}) {
    for (const char* tied : {"false", "true"}) {
      SCOPED_TRACE(std::string(model) + (*tied == 't' ? ", tied" : ""));
      const Scratch scratch;
      const std::string folder = scratch.path("model");
      succeeded(run_program(exporting(scratch, model, folder) + Words{"--tied", tied}));
      const double expected = read_metrics(scratch.path("metrics.jsonl")).back()["validation_loss"];
      for (const Words schedule : {"--schedule none", "--stages 2", "--schedule 1f1b --stages 4"}) {
        std::filesystem::remove(scratch.path("again.jsonl"));
        succeeded(run_program(going_on(scratch, folder, schedule, "again.jsonl")));
        EXPECT_NEAR(read_metrics(scratch.path("again.jsonl")).back()["validation_loss"], expected, 1e-12 * expected);
      }
    }
  }
}

TEST(TrainingFolderTest, FolderIsCompleteAndDescribesItself) {
  const Scratch scratch;
  const std::string folder = scratch.path("model");
  const ProgramResult result =
      run_program(exporting(scratch, "gpt2-tiny", folder) + "--export-dtype bfloat16 --export-shard-size 100KB");
  ASSERT_EQ(result.exit_code, 0) << result.messages;
  EXPECT_FALSE(std::filesystem::exists(folder + ".unfinished-1"));
  const json config = read_json(read_file(folder + "/config.json"));
  EXPECT_EQ(config["model_type"], "gpt2");
  EXPECT_EQ(config["dtype"], "bfloat16");
  EXPECT_TRUE(read_json(read_file(folder + "/generation_config.json")).is_object());
  const json index = read_json(read_file(folder + "/model.safetensors.index.json"));
  const std::int64_t parameters = read_json(output_of(split("model {} --format json", folder)))["parameters"];
  EXPECT_EQ(index["metadata"]["total_size"], 2 * parameters);
}

TEST(TrainingFolderTest, AFailedExportLeavesTheModel) {
  const Scratch scratch;
  const std::string folder = scratch.path("model");
  const ProgramResult result =
      ProgramRun(exporting(scratch, "gpt2-tiny", folder), {.environment = {"CHIMERA_FAULT=throw@export:1"}}).wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.messages, HasSubstr("fault injected at export; the model is saved in " + folder +
                                         ".checkpoint/step-00000002; `chimera export "));
  // A rank that is killed while it holds the name leaves an empty folder, which the next export takes.
  EXPECT_TRUE(!std::filesystem::exists(folder) || std::filesystem::is_empty(folder));
  EXPECT_EQ(run_program({"export", folder + ".checkpoint", "--output", folder}).exit_code, 0);
  std::filesystem::remove_all(folder);
  const ProgramResult again = ProgramRun(exporting(scratch, "gpt2-tiny", folder + "/") + "--overwrite",
                                         {.environment = {"CHIMERA_FAULT=throw@export:0"}})
                                  .wait();
  EXPECT_THAT(again.messages, HasSubstr("saved in " + folder + ".checkpoint.2/step-00000002; `chimera export "));
  const ProgramResult saving = ProgramRun(exporting(scratch, "gpt2-tiny", scratch.path("other")) +
                                              Words{"--checkpoint", scratch.path("run"), "--overwrite"},
                                          {.environment = {"CHIMERA_FAULT=throw@export:0"}})
                                   .wait();
  EXPECT_EQ(saving.exit_code, 1);
  EXPECT_THAT(saving.messages, HasSubstr("the model is saved in " + scratch.path("run")));
}

TEST(TrainingFolderTest, ARankThatIsKilledInTheExportLeavesNoPartOfIt) {
  for (const char* fault : {"CHIMERA_FAULT=kill@export:0", "CHIMERA_FAULT=kill@export:1"}) {
    const Scratch scratch;
    const ProgramResult lost =
        ProgramRun(exporting(scratch, "gpt2-tiny", scratch.path("model")), {.environment = {fault}}).wait();
    EXPECT_EQ(lost.exit_code, 1);
    EXPECT_THAT(lost.messages, HasSubstr("chimera: the model is not kept: --export writes it after the last step"));
    EXPECT_FALSE(std::filesystem::exists(scratch.path("model")));
    EXPECT_FALSE(std::filesystem::exists(scratch.path("model.unfinished-1")));
  }
}

TEST(TrainingFolderTest, RejectsFlagsThatContradictTheFolder) {
  const Scratch scratch;
  const std::string folder = scratch.path("model");
  ASSERT_EQ(run_program(exporting(scratch, "gpt2-tiny", folder)).exit_code, 0);
  const Words train = small_training(scratch, "none.jsonl") + split("--from {} --steps 1", folder);
  expect_refusal({train + "--layers 5", {folder, "layers 4", "5"}});
  expect_refusal({train + "--model gpt2-mini", {folder, "hidden 64", "224"}});
  expect_refusal({train + Words{"--export", folder}, {"--export " + folder, "give another one"}});
  for (const char* name : {"step-00000002.tmp", "latest", "left-out.json", "flight", ""}) {
    expect_refusal({train + Words{"--checkpoint", scratch.path("run"), "--export", scratch.path("run/") + name},
                    {"--export " + scratch.path("run"), "the run writes this file or folder of --checkpoint"}});
  }
  expect_refusal({train + "--export-dtype bfloat16", {"--export-dtype is for --export"}});
  expect_refusal({train + split("--export {} --export-dtype int8", scratch.path("x")), {"--export-dtype", "int8"}});
  expect_refusal({train + split("--export {} --export-shard-size much", scratch.path("x")), {"5GB"}});
  expect_refusal(
      {train + Words{"--export", scratch.path("text.txt/x")}, {"text.txt/x: cannot be written (Not a directory)"}});
  expect_refusal({split("export {} --output {}", folder, scratch.path("text.txt")), {"text.txt: exists already"}});
  expect_refusal({split("export {} --output {}", scratch.path("none"), scratch.path("x")), {"none: is not a folder"}});
  std::filesystem::resize_file(folder + "/model.safetensors", 1000);
  expect_refusal({train, {"model.safetensors: is cut off"}});
  expect_refusal({{"model", folder}, {"model.safetensors: is cut off"}});
  std::filesystem::rename(folder + "/model.safetensors", folder + "/pytorch_model.bin");
  expect_refusal({{"model", folder}, {"pytorch_model.bin: is a pickle"}});
}

}  // namespace
}  // namespace chimera::testing
