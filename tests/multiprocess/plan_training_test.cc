// Training with plans: --config, --plan auto, --recompute auto and stages.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/json.h"
#include "support/paths.h"
#include "support/refusal.h"
#include "training.h"

namespace chimera::testing {
namespace {

using ::testing::HasSubstr;

const std::string kP100 = testing::source_path("/machines/p100-aries.json");

std::vector<double> losses(const std::string& metrics) {
  std::vector<double> result;
  for (const auto& step : read_metrics(metrics)) result.push_back(step["loss"]);
  return result;
}

ProgramResult train(const Scratch& scratch, const std::string& metrics, const Arguments& flags) {
  ProgramResult result = run_program(small_training(scratch, metrics) + Arguments{"--steps", "2"} + flags);
  EXPECT_EQ(result.exit_code, 0) << result.messages;
  return result;
}

TEST(TrainingPlanTest, ConfigurationEqualsItsFlags) {
  const Scratch scratch;
  const std::string config = scratch.write("run.toml",
                                           "# a run\nmodel = \"gpt2-tiny\"\nschedule = \"1f1b\"\nstages = 2\n"
                                           "micro-batches = 4\nlearning-rate = 0.002\nshard-optimizer = false\n");
  (void)train(scratch, "flags.jsonl",
              {"--model", "gpt2-tiny", "--schedule", "1f1b", "--stages", "2", "--micro-batches", "4", "--learning-rate",
               "0.002"});
  (void)train(scratch, "config.jsonl", {"--config", config});
  const auto expected = losses(scratch.path("flags.jsonl"));
  ASSERT_EQ(expected.size(), 2U);
  EXPECT_EQ(losses(scratch.path("config.jsonl")), expected);
}

TEST(TrainingPlanTest, CommandLineOverridesTheConfiguration) {
  const Scratch scratch;
  const std::string config = scratch.write("run.toml", "model = \"gpt2-tiny\"\nstages = 4\nmicro-batches = 4\n");
  const ProgramResult result =
      train(scratch, "metrics.jsonl", {"--config", config, "--stages", "2", "--transport", "threads"});
  EXPECT_THAT(result.output, HasSubstr("2 stages on 2 threads"));
  EXPECT_THAT(result.output, HasSubstr("4 micro-batches"));
}

TEST(TrainingPlanTest, PlanOutputTrainsUnchanged) {
  const Scratch scratch;
  const std::string plan = scratch.path("plan.toml");
  const ProgramResult planned =
      run_program({"plan", "--model", "gpt2-tiny", "--workers", "2", "--mini-batch", "8", "--sequence", "32",
                   "--machine", kP100, "--schedules", "chimera", "--output", plan});
  ASSERT_EQ(planned.exit_code, 0) << planned.messages;
  const std::string text = scratch.write("text.txt", sample_text());
  const ProgramResult result =
      run_program({"train", "--config", plan, "--device", "cpu", "--data", text, "--steps", "1"});
  EXPECT_EQ(result.exit_code, 0) << result.messages;
  EXPECT_THAT(result.output, HasSubstr("gpt2-tiny"));
  const auto forecast =
      try_json(run_program({"train", "--config", plan, "--device", "cpu", "--dry-run", "--format", "json"}).output);
  const std::string predicted = read_file(plan);
  const double seconds = std::stod(predicted.substr(predicted.find("predicted_step_seconds = ") + 25));
  EXPECT_NEAR(forecast["step_seconds"].get<double>(), seconds, 1e-3 * seconds) << "of the plan's machine";
}

TEST(TrainingSweepTest, TakesOnlyRowsOfItsOwnRuns) {
  const Scratch scratch;
  const auto sweep = [&](const char* sequence) {
    return Arguments{"sweep",
                     "--schedules",
                     "1f1b",
                     "--stages",
                     "2",
                     "--micro-batches",
                     "2",
                     "--train",
                     scratch.path("text.txt"),
                     "--model",
                     "gpt2-tiny",
                     "--steps",
                     "1",
                     "--sequence",
                     sequence,
                     "--output",
                     scratch.path("rows.csv")};
  };
  scratch.write("text.txt", sample_text());
  EXPECT_EQ(run_program(sweep("16")).exit_code, 0);
  EXPECT_THAT(run_program(sweep("16")).messages, ::testing::Not(HasSubstr("$ "))) << "the row is taken from the file";
  expect_refusal({sweep("32"), {"rows.csv: its rows are of other data or flags of `train`"}});
  scratch.write("text.txt", sample_text() + " more");
  expect_refusal({sweep("16"), {"its rows are of other data"}});
}

TEST(TrainingPlanTest, PlansWithSlicesTrain) {
  const Scratch scratch;
  const std::string plan = scratch.path("plan.toml");
  const ProgramResult planned = run_program({"plan", "--model", "gpt2-tiny", "--workers", "2", "--mini-batch", "4",
                                             "--sequence", "512", "--machine", kP100, "--schedules", "chimera-zb",
                                             "--stages", "2", "--slices", "4", "--output", plan});
  ASSERT_EQ(planned.exit_code, 0) << planned.messages;
  EXPECT_THAT(planned.output, HasSubstr("chosen: chimera-zb"));
  EXPECT_THAT(planned.output, HasSubstr(" k 4"));
  const std::string text = scratch.write("text.txt", sample_text());
  const ProgramResult result = run_program(
      {"train", "--config", plan, "--device", "cpu", "--data", text, "--dry-run", "--slice-lengths", "balanced"});
  EXPECT_EQ(result.exit_code, 0) << result.messages;
  EXPECT_EQ(run_program({"train", "--config", plan, "--device", "cpu", "--data", text, "--dry-run"}).exit_code, 0);
}

TEST(TrainingPlanTest, PlanAutoTrainsInOneGo) {
  const Scratch scratch;
  const std::string text = scratch.write("text.txt", sample_text());
  const ProgramResult result =
      run_program({"train",        "--model",    "gpt2-tiny", "--plan", "auto",     "--workers", "2",
                   "--mini-batch", "4",          "--machine", kP100,    "--memory", "1",         "--schedule",
                   "1f1b",         "--sequence", "32",        "--data", text,       "--steps",   "1"});
  EXPECT_EQ(result.exit_code, 0) << result.messages;
  EXPECT_THAT(result.messages, HasSubstr("plan: 1f1b"));
}

TEST(TrainingPlanTest, TheCommandLineOverridesTheFileWhichOverridesThePlanAndDefaults) {
  const Scratch scratch;
  const std::string config =
      scratch.write("run.toml",
                    "model = \"gpt2-tiny\"\nschedule = \"1f1b\"\nsequence = 64\nplan = \"auto\"\n"
                    "workers = 2\nmini-batch = 4\nmemory = 1\nmicro-batch-size = 1\n");
  const ProgramResult refused = run_program({"train", "--config", config, "--machine", kP100, "--dry-run"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.messages, HasSubstr("--plan auto chooses --micro-batch-size")) << "the file gives it";
  const Arguments flags = {"train",     "--config", config, "--machine",  kP100,
                           "--dry-run", "--format", "json", "--sequence", "32"};
  const auto dry_run = [&](const Arguments& more) {
    const ProgramResult result = run_program(flags + more);
    EXPECT_EQ(result.exit_code, 0) << result.messages;
    return nlohmann::json::parse(result.output, nullptr, false);
  };
  const auto unplanned = dry_run({"--plan", "none"});
  EXPECT_EQ(unplanned["ranks"].size(), 4U) << "default";
  EXPECT_EQ(unplanned["micro_batch_size"], 1) << "file";
  EXPECT_EQ(unplanned["schedule"], "1f1b") << "file";
  EXPECT_EQ(unplanned["sequence"], 32) << "command line";
  (void)scratch.write("run.toml",
                      "model = \"gpt2-tiny\"\nschedule = \"1f1b\"\nsequence = 64\nplan = \"auto\"\nworkers = 2\n"
                      "mini-batch = 4\nmemory = 1\n");
  const auto planned = dry_run({});
  EXPECT_EQ(planned["ranks"].size(), 2U) << "plan";
  EXPECT_EQ(planned["mini_batch"], 4) << "plan";
  EXPECT_EQ(planned["schedule"], "1f1b") << "file";
  EXPECT_EQ(planned["sequence"], 32) << "command line";
}

TEST(TrainingPlanTest, PlanAutoSharesLayersBetweenTheGpusOfAHost) {
  const auto ranks_of_a_worker = [](const Arguments& more) {
    const Arguments flags = {"train",      "--model",  "llama-3-8b",   "--plan",   "auto",
                             "--workers",  "8",        "--mini-batch", "16",       "--machine",
                             "h100-80gb",  "--device", "cuda",         "--dtype",  "bfloat16",
                             "--sequence", "8192",     "--dry-run",    "--format", "json"};
    const ProgramResult result = run_program(flags + more);
    EXPECT_EQ(result.exit_code, 0) << result.messages;
    return try_json(result.output)["tensor_parallel"].get<int>();
  };
  EXPECT_GT(ranks_of_a_worker({}), 1);
  EXPECT_EQ(ranks_of_a_worker({"--tensor-parallel", "1"}), 1);
}

TEST(TrainingPlanTest, AGivenReplicaLayoutRestrictsThePlan) {
  const ProgramResult result =
      run_program({"train", "--model", "gpt2-tiny", "--plan", "auto", "--workers", "4", "--mini-batch", "8",
                   "--machine", kP100, "--memory", "1", "--replica-layout", "far", "--dry-run"});
  EXPECT_EQ(result.exit_code, 0) << result.messages;
  EXPECT_THAT(result.messages, HasSubstr("replicas far"));
}

TEST(TrainingPlanTest, RecomputingSomeStagesChangesNoNumber) {
  const Scratch scratch;
  const Arguments shape = {"--model", "gpt2-tiny", "--schedule", "1f1b", "--stages", "2", "--transport", "threads"};
  (void)train(scratch, "none.jsonl", shape);
  (void)train(scratch, "one.jsonl", shape + Arguments{"--recompute", "0"});
  (void)train(scratch, "auto.jsonl", shape + Arguments{"--recompute", "auto", "--memory", "1"});
  const auto expected = losses(scratch.path("none.jsonl"));
  EXPECT_EQ(losses(scratch.path("one.jsonl")), expected);
  EXPECT_EQ(losses(scratch.path("auto.jsonl")), expected);
}

TEST(PlanRefusalTest, Flags) {
  const Scratch scratch;
  const std::string text = scratch.write("text.txt", sample_text());
  const std::string unknown = scratch.write("unknown.toml", "stages = 2\nmicro-batch = 4\n");
  const std::string list = scratch.write("list.toml", "stages = [[2]]\n");
  const std::string broken = scratch.write("broken.toml", "stages = \n");
  const std::string half = scratch.write("half.toml", "shard-optimizer = 3\n");
  const Arguments train = {"train", "--data", text, "--schedule", "chimera"};
  const Arguments planned =
      train + Arguments{"--plan", "auto", "--machine", kP100, "--workers", "2", "--mini-batch", "4"};
  for (const Refusal& refusal : std::vector<Refusal>{
           {train + Arguments{"--config", unknown}, {"unknown.toml:2", "did you mean 'micro-batches'?"}},
           {train + Arguments{"--config", list}, {"list.toml:1", "'stages' has a list in a list"}},
           {train + Arguments{"--config", broken}, {"broken.toml:1"}},
           {train + Arguments{"--config", half}, {"half.toml:1", "'shard-optimizer' is either true or false"}},
           {train + Arguments{"--config", "missing.toml"}, {"missing.toml: cannot be read"}},
           {train + Arguments{"--machine", kP100}, {"p100-aries.json: has no matrix_flops of float32"}},
           {planned + Arguments{"--stages", "2"}, {"--plan auto chooses --stages"}},
           {planned + Arguments{"--memory", "0.001"}, {"does not fit", "it needs at least"}},
           {train + Arguments{"--plan", "auto"}, {"--workers is missing"}},
           {train + Arguments{"--recompute", "some"}, {"unknown --recompute 'some'", "known: "}},
           {train + Arguments{"--recompute", "atention"}, {"did you mean 'attention'"}},
           {train + Arguments{"--recompute", "0,4"}, {"--recompute 0,4", "0 to 3"}},
           {train + Arguments{"--recompute", "auto"}, {"--recompute auto needs --memory"}},
           {train + Arguments{"--recompute", "auto", "--memory", "0.001"}, {"--memory 0.001", "even if all stages"}},
       }) {
    expect_refusal(refusal);
  }
}

}  // namespace
}  // namespace chimera::testing
