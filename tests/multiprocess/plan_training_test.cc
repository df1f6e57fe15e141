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

ProgramResult train(const Scratch& scratch, const std::string& metrics, const Words& flags) {
  ProgramResult result = succeeded(run_program(small_training(scratch, metrics) + "--steps 2" + flags));
  return result;
}

TEST(TrainingPlanTest, ConfigurationEqualsItsFlags) {
  const Scratch scratch;
  const std::string config = scratch.write("run.toml",
                                           "# a run\nmodel = \"gpt2-tiny\"\nschedule = \"1f1b\"\nstages = 2\n"
                                           "micro-batches = 4\nlearning-rate = 0.002\nshard-optimizer = false\n");
  (void)train(scratch, "flags.jsonl",
              "--model gpt2-tiny --schedule 1f1b --stages 2 --micro-batches 4 --learning-rate 0.002");
  (void)train(scratch, "config.jsonl", {"--config", config});
  const auto expected = losses(scratch.path("flags.jsonl"));
  ASSERT_EQ(expected.size(), 2U);
  EXPECT_EQ(losses(scratch.path("config.jsonl")), expected);
}

TEST(TrainingPlanTest, CommandLineOverridesTheConfiguration) {
  const Scratch scratch;
  const std::string config = scratch.write("run.toml", "model = \"gpt2-tiny\"\nstages = 4\nmicro-batches = 4\n");
  const ProgramResult result =
      train(scratch, "metrics.jsonl", split("--config {} --stages 2 --transport threads", config));
  EXPECT_THAT(result.output, HasSubstr("2 stages on 2 threads"));
  EXPECT_THAT(result.output, HasSubstr("4 micro-batches"));
}

TEST(TrainingPlanTest, PlanOutputTrainsUnchanged) {
  const Scratch scratch;
  const std::string plan = scratch.path("plan.toml");
  const ProgramResult planned =
      run_program(split("plan --model gpt2-tiny --workers 2 --mini-batch 8 --sequence 32 --machine {} --network 1Gb/s "
                        "--schedules chimera --output {}",
                        kP100, plan));
  ASSERT_EQ(planned.exit_code, 0) << planned.messages;
  const std::string text = scratch.write("text.txt", sample_text());
  EXPECT_THAT(output_of(split("train --config {} --device cpu --data {} --steps 1", plan, text)),
              HasSubstr("gpt2-tiny"));
  const auto forecast =
      try_json(run_program(split("train --config {} --device cpu --dry-run --format json", plan)).output);
  const std::string predicted = read_file(plan);
  const double seconds = std::stod(predicted.substr(predicted.find("predicted_step_seconds = ") + 25));
  EXPECT_NEAR(forecast["step_seconds"].get<double>(), seconds, 1e-3 * seconds) << "of the plan's machine and network";
}

TEST(TrainingSweepTest, TakesOnlyRowsOfItsOwnRuns) {
  const Scratch scratch;
  const std::string text = scratch.path("text.txt");
  const std::string rows = scratch.path("rows.csv");
  const auto sweep = [&](const char* sequence) {
    return split(
        "sweep --schedules 1f1b --stages 2 --micro-batches 2 --train {} --model gpt2-tiny --steps 1 --sequence {} "
        "--output {}",
        text, sequence, rows);
  };
  scratch.write("text.txt", sample_text());
  EXPECT_EQ(run_program(sweep("16")).exit_code, 0);
  EXPECT_THAT(run_program(sweep("16")).messages, ::testing::Not(HasSubstr("$ "))) << "the row is taken from the file";
  expect_refusal({sweep("32"), {"rows.csv: its rows are of other data or flags of `train`"}});
  scratch.write("text.txt", sample_text() + " more");
  expect_refusal({sweep("16"), {"its rows are of other data"}});
  std::string swapped = sample_text();
  std::swap(swapped.front(), swapped.back());
  scratch.write("text.txt", swapped);
  expect_refusal({sweep("16"), {"its rows are of other data"}});  // Of equal size
  Words own = sweep("16") + Words{"--config", scratch.write("run.toml", "seed = 1\n")};
  std::ranges::replace(own, rows, scratch.path("own.csv"));
  EXPECT_EQ(run_program(own).exit_code, 0);
  const std::string written = read_file(scratch.path("own.csv"));
  scratch.write("own.csv", written.substr(0, written.size() - 3));
  EXPECT_THAT(run_program(own).messages, HasSubstr("$ ")) << "the last line is cut, and trained again";
  scratch.write("run.toml", "seed = 2\n");
  expect_refusal({own, {"its rows are of other data or flags"}});
}

TEST(TrainingPlanTest, PlansWithSlicesTrain) {
  const Scratch scratch;
  const std::string plan = scratch.path("plan.toml");
  const std::string planned =
      output_of(split("plan --model gpt2-tiny --workers 2 --mini-batch 4 --sequence 512 --machine {} --schedules "
                      "chimera-zb --stages 2 --slices 4 --output {}",
                      kP100, plan));
  EXPECT_THAT(planned, HasSubstr("chosen: chimera-zb"));
  EXPECT_THAT(planned, HasSubstr(" k 4"));
  const std::string text = scratch.write("text.txt", sample_text());
  const ProgramResult result =
      run_program(split("train --config {} --device cpu --data {} --dry-run --slice-lengths balanced", plan, text));
  EXPECT_EQ(result.exit_code, 0) << result.messages;
  EXPECT_EQ(run_program(split("train --config {} --device cpu --data {} --dry-run", plan, text)).exit_code, 0);
}

TEST(TrainingPlanTest, PlanAutoTrainsInOneGo) {
  const Scratch scratch;
  const std::string text = scratch.write("text.txt", sample_text());
  const ProgramResult result =
      run_program(split("train --model gpt2-tiny --plan auto --workers 2 --mini-batch 4 --machine {} --memory 1 "
                        "--schedule 1f1b --sequence 32 --data {} --steps 1",
                        kP100, text));
  EXPECT_EQ(result.exit_code, 0) << result.messages;
  EXPECT_THAT(result.messages, HasSubstr("plan: 1f1b"));
}

TEST(TrainingPlanTest, TheCommandLineOverridesTheFileWhichOverridesThePlanAndDefaults) {
  const Scratch scratch;
  const std::string config =
      scratch.write("run.toml",
                    "model = \"gpt2-tiny\"\nschedule = \"1f1b\"\nsequence = 64\nplan = \"auto\"\n"
                    "workers = 2\nmini-batch = 4\nmemory = 1\nmicro-batch-size = 1\n");
  const ProgramResult refused = run_program(split("train --config {} --machine {} --dry-run", config, kP100));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.messages, HasSubstr("--plan auto chooses --micro-batch-size")) << "the file gives it";
  const Words flags = split("train --config {} --machine {} --dry-run --format json --sequence 32", config, kP100);
  const auto dry_run = [&](const Words& more) {
    return nlohmann::json::parse(output_of(flags + more), nullptr, false);
  };
  const auto unplanned = dry_run("--plan none");
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
  const auto ranks_of_a_worker = [](const Words& more) {
    const Words flags =
        "train --model llama-3-8b --plan auto --workers 8 --mini-batch 16 --machine h100-80gb --device cuda --dtype "
        "bfloat16 --sequence 8192 --dry-run --format json";
    return try_json(output_of(flags + more))["tensor_parallel"].get<int>();
  };
  EXPECT_GT(ranks_of_a_worker({}), 1);
  EXPECT_EQ(ranks_of_a_worker("--tensor-parallel 1"), 1);
}

TEST(TrainingPlanTest, AGivenReplicaLayoutRestrictsThePlan) {
  const ProgramResult result =
      run_program(split("train --model gpt2-tiny --plan auto --workers 4 --mini-batch 8 --machine {} --memory 1 "
                        "--replica-layout far --dry-run",
                        kP100));
  EXPECT_EQ(result.exit_code, 0) << result.messages;
  EXPECT_THAT(result.messages, HasSubstr("replicas far"));
}

TEST(TrainingPlanTest, RecomputingSomeStagesChangesNoNumber) {
  const Scratch scratch;
  const Words shape = "--model gpt2-tiny --schedule 1f1b --stages 2 --transport threads";
  (void)train(scratch, "none.jsonl", shape);
  (void)train(scratch, "one.jsonl", shape + "--recompute 0");
  (void)train(scratch, "auto.jsonl", shape + "--recompute auto --memory 1");
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
  const Words train = split("train --data {} --schedule chimera", text);
  const Words planned = train + split("--plan auto --machine {} --workers 2 --mini-batch 4", kP100);
  for (const Refusal& refusal : std::vector<Refusal>{
           {train + Words{"--config", unknown}, {"unknown.toml:2", "did you mean 'micro-batches'?"}},
           {train + Words{"--config", list}, {"list.toml:1", "'stages' has a list in a list"}},
           {train + Words{"--config", broken}, {"broken.toml:1"}},
           {train + Words{"--config", half}, {"half.toml:1", "'shard-optimizer' is either true or false"}},
           {train + "--config missing.toml", {"missing.toml: cannot be read"}},
           {train + Words{"--machine", kP100}, {"p100-aries.json: has no matrix_flops of float32"}},
           {planned + "--stages 2", {"--plan auto chooses --stages"}},
           {planned + "--memory 0.001", {"does not fit", "it needs at least"}},
           {train + "--plan auto", {"--workers is missing"}},
           {train + "--recompute some", {"unknown --recompute 'some'", "known: "}},
           {train + "--recompute atention", {"did you mean 'attention'"}},
           {train + "--recompute 0,4", {"--recompute 0,4", "0 to 3"}},
           {train + "--recompute auto", {"--recompute auto needs --memory"}},
           {train + "--recompute auto --memory 0.001", {"--memory 0.001", "even if all stages"}},
       }) {
    expect_refusal(refusal);
  }
}

}  // namespace
}  // namespace chimera::testing
