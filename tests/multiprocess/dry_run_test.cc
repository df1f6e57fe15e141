
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/cgroup.h"
#include "core/json.h"
#include "support/paths.h"
#include "training.h"

namespace chimera::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json dry_run(const Words& flags) {
  const ProgramResult result = succeeded(run_program("train --dry-run --format json" + flags));
  EXPECT_FALSE(result.left_files);
  return try_json(result.output);
}

/// The sum of a field over a list.
double total(const json& list, const char* field) {
  double sum = 0;
  for (const json& entry : list) sum += entry.at(field).get<double>();
  return sum;
}

TEST(DryRunTest, DescribesEveryRank) {
  const Words flags = "--model gpt2-tiny --schedule chimera --stages 4 --data-parallel 2";
  const json run = dry_run(flags + "--micro-batches 4");
  const json same = dry_run(flags + "--mini-batch 32");
  EXPECT_EQ(same["micro_batches"], run["micro_batches"]);
  ASSERT_EQ(run["ranks"].size(), 8U);
  ASSERT_EQ(run["stages"].size(), 4U);
  EXPECT_EQ(run["mini_batch"], 4 * 2 * 4) << "micro-batches of 4 sequences";
  EXPECT_EQ(total(run["stages"], "parameters"), run["parameters"].get<double>());
  EXPECT_EQ(total(run["ranks"], "parameters"), 4 * run["parameters"].get<double>()) << "two pipelines, two groups";
  EXPECT_EQ(total(run["stages"], "layers"), 4);
  for (const json& stage : run["stages"]) EXPECT_EQ(stage["ranks"].size(), 4U);
  for (const json& rank : run["ranks"]) {
    EXPECT_EQ(rank["stages"].size(), 2U);
    EXPECT_EQ(rank["weights_bytes"], 4 * rank["parameters"].get<double>()) << "float32";
    EXPECT_EQ(rank["optimizer_bytes"], 8 * rank["parameters"].get<double>()) << "AdamW";
    EXPECT_GT(rank["peak_memory_bytes"].get<double>(), 16 * rank["parameters"].get<double>());
    EXPECT_GT(rank["compute_seconds"].get<double>(), 0);
    EXPECT_GT(rank["bubble_ratio"].get<double>(), 0);
    EXPECT_LT(rank["bubble_ratio"].get<double>(), 1);
    EXPECT_EQ(rank["step_seconds"], run["step_seconds"]);
  }
  EXPECT_GT(run["step_seconds"].get<double>(), 0);
}

/// Ranks without a core wait, which the bubble ratio counts.
TEST(DryRunTest, SaysThatRanksShareCores) {
  const Words flags = "--model gpt2-tiny --micro-batches 4";
  const json cores = dry_run(flags + "--stages 1 --schedule gpipe")["shared_cores"];
  EXPECT_EQ(cores, 0) << "one rank has all cores";
  const Words more = flags + split("--stages 4 --data-parallel {}", 2 * available_cores());
  EXPECT_EQ(dry_run(more)["shared_cores"], available_cores());
  EXPECT_THAT(run_program("train --dry-run" + more).output,
              HasSubstr(fmt::format(" ({} ranks on {} core", 8 * available_cores(), available_cores())));
}

TEST(DryRunTest, ReportsFlagsWithoutEffect) {
  const Words common = "train --dry-run --model gpt2-tiny --tied false --micro-batches 2";
  const Words one_copy = common + "--schedule 1f1b --stages 2";
  const Words two_copies = common + "--schedule chimera --stages 2";
  const auto said = [](const Words& arguments) { return run_program(arguments).messages; };
  for (const Words flags : {"--sync post", "--shard-optimizer"}) {
    EXPECT_EQ(said(one_copy + flags), "chimera: " + flags[0] + " has no effect: no stage has a second copy\n");
    EXPECT_EQ(said(two_copies + flags), "");
  }
  EXPECT_EQ(said(two_copies + "--shard-optimizer --optimizer sgd"),
            "chimera: --shard-optimizer has no effect: --optimizer sgd has no state\n");
  EXPECT_EQ(said(one_copy + "--replica-layout far"),
            "chimera: --replica-layout has no effect: there is one data-parallel group\n");
  EXPECT_EQ(said(one_copy + "--data-parallel 2 --replica-layout far"), "");
  EXPECT_EQ(said(common + "--schedule none --partition 4 --verify-messages"),
            "chimera: --partition has no effect: one stage has all layers\n"
            "chimera: --verify-messages has no effect: one rank sends no messages\n");
  EXPECT_EQ(said(one_copy + "--decay all --weight-decay 0 --validation 0.1"),
            "chimera: --decay has no effect: --weight-decay is 0\n"
            "chimera: --validation has no effect: --validate-every is 0; the other data are for training\n");
}

TEST(DryRunTest, TheBubbleIsTheMeanOfAllRanks) {
  for (const Words machine : {"", "--machine h100-80gb"}) {
    const json run = dry_run("--model gpt2-tiny --stages 4 --micro-batches 8 --data-parallel 2" + machine);
    EXPECT_NEAR(total(run["ranks"], "bubble_ratio") / 8, run["bubble_ratio"], 1e-9);
    for (const json& rank : run["ranks"]) {
      const double idle = rank["bubble_ratio"].get<double>() * rank["step_seconds"].get<double>();
      EXPECT_NEAR(rank["compute_seconds"].get<double>() + idle, rank["step_seconds"], 1e-9);
    }
  }
}

TEST(DryRunTest, EndsWithTwoIfARankNeedsMoreThanItHas) {
  const Words words = "train --dry-run --model llama-3-8b --schedule chimera --stages 2 --machine h100-80gb";
  const ProgramResult text = run_program(words);
  EXPECT_EQ(text.exit_code, 2);
  EXPECT_THAT(text.output, HasSubstr("of 74.51 GiB: DOES NOT FIT\n"));
  EXPECT_THAT(text.output,
              HasSubstr("\nof that, 0.93 GiB for the CUDA context, 0.93 GiB for NCCL, 1.49 GiB in reserve\n"));
  EXPECT_THAT(text.messages, ::testing::StartsWith("chimera: DOES NOT FIT: a rank needs "));
  const ProgramResult fields = run_program(words + "--format json");
  EXPECT_EQ(fields.exit_code, 2);
  EXPECT_EQ(try_json(fields.output)["fits"], false);
  const ProgramResult small =
      run_program("train --dry-run --model gpt2-tiny --stages 2 --machine h100-80gb --memory 0.001");
  EXPECT_EQ(small.exit_code, 2) << "as the run itself";
  EXPECT_THAT(small.output, HasSubstr("of 1.024 MiB: DOES NOT FIT\n"));
}

const Words kEightGpus =
    "--model llama-3-8b --stages 8 --micro-batches 32 --sequence 2048 --micro-batch-size 1 --dtype bfloat16 --device "
    "cuda";

TEST(DryRunTest, ChoosesTheFastestScheduleThatFits) {
  const json chosen = dry_run(kEightGpus);
  const json plain = dry_run(kEightGpus + "--schedule 1f1b");
  EXPECT_LT(chosen["step_seconds"], plain["step_seconds"]);
  EXPECT_FALSE(plain.contains("runner_up"));
  const std::string next = chosen["runner_up"]["schedule"];
  const json second = dry_run(kEightGpus + Words{"--schedule", next});
  const double time = chosen["step_seconds"].get<double>() * (1 + chosen["runner_up"]["more_time"].get<double>());
  EXPECT_NEAR(second["step_seconds"].get<double>(), time, 1e-9);
  const double memory = 0.99 * chosen["peak_memory_bytes"].get<double>();
  const json small = dry_run(kEightGpus + Words{"--memory", std::to_string(memory / (1 << 30))});
  EXPECT_LE(small["peak_memory_bytes"], memory);
  EXPECT_NE(small["schedule"], chosen["schedule"]);
  EXPECT_THAT(run_program("train --dry-run" + kEightGpus).output, HasSubstr("chosen by prediction; next: " + next));
}

TEST(DryRunTest, ChoosesAScheduleThatTakesTheFlags) {
  const json pairs = dry_run(kEightGpus + "--recover twin");
  for (const json& stage : pairs["stages"]) EXPECT_GE(stage["ranks"].size(), 2U) << pairs["schedule"];
  EXPECT_EQ(dry_run(kEightGpus + "--chunks 2")["stages"].size(), 16U);
  EXPECT_EQ(dry_run(kEightGpus + "--recompute 0,7")["stages"].size(), 8U);
  const json one = dry_run("--model gpt2-tiny --stages 1");
  EXPECT_EQ(one["schedule"], "1f1b");
  EXPECT_FALSE(one.contains("runner_up"));
}

std::string layers_of(const json& run) {
  std::string layers;
  for (const json& stage : run["stages"]) layers += std::to_string(stage["layers"].get<int>()) + " ";
  return layers;
}

/// The head of gpt2-64 takes as long as about 3.5 of its blocks, so that even stages leave seven GPUs waiting.
TEST(DryRunTest, TheLastStageOnGpusHasFewerBlocks) {
  const Words flags =
      "--model gpt2-64 --sequence 1024 --schedule 1f1b --stages 8 --dtype bfloat16 --device cuda --micro-batches 32";
  EXPECT_EQ(layers_of(dry_run(flags)), "9 9 9 8 8 8 8 5 ");
  EXPECT_EQ(layers_of(dry_run(flags + "--partition even")), "8 8 8 8 8 8 8 8 ");
  const ProgramResult text = run_program("train --dry-run" + flags);
  EXPECT_THAT(text.output, HasSubstr("layers on the stages: 9,9,9,8,8,8,8,5 (faster than even by prediction; "
                                     "--partition even: equal numbers)\n"));
}

/// At 128 tokens, the host's launches bound a block's time, and the embedding's update and sums are long.
TEST(DryRunTest, ThePartitionIsNotSlowerThanEvenByItsOwnForecast) {
  for (const char* schedule : {"1f1b", "zb-h1", "chimera"}) {
    const Words flags = split(
        "--model llama-3-8b --stages 8 --data-parallel 2 --device cuda --sequence 128 --micro-batch-size 1 --dtype "
        "bfloat16 --micro-batches 8 --schedule {}",
        schedule);
    const double even = dry_run(flags + "--partition even")["step_seconds"];
    EXPECT_LE(dry_run(flags)["step_seconds"].get<double>(), even) << schedule;
    EXPECT_LE(dry_run(flags + "--machine h100-80gb")["step_seconds"].get<double>(), even) << schedule;
  }
}

TEST(DryRunTest, PredictsWhatThePlanPredicts) {
  const Scratch scratch;
  const std::string file = scratch.path("plan.toml");
  const json chosen = try_json(
      output_of(split("plan --model llama-3-8b --workers 16 --mini-batch 32 --machine h100-80gb --schedules 1f1b "
                      "--stages 4 --partition even --replica-layout far --top 1 --format json --output {}",
                      file)))["chosen"];
  const json run = dry_run({"--config", file});
  EXPECT_DOUBLE_EQ(run["step_seconds"], chosen["step_seconds"]);
  EXPECT_DOUBLE_EQ(run["bubble_ratio"], chosen["bubble_ratio"]);
  EXPECT_DOUBLE_EQ(run["peak_memory_bytes"], chosen["peak_memory_bytes"]);
  EXPECT_EQ(run["sequence"], 8192) << "the model's own context";
  EXPECT_EQ(run["gpu"]["receives_ahead"], 1) << "it is a run on GPUs";
}

TEST(DryRunTest, PredictsWithTheProfileOfAMachine) {
  const Words flags = split("--model gpt2 --stages 8 --micro-batches 8 --sequence 512 --layers 16 --machine {}",
                            testing::source_path("/machines/v100-nvlink.json"));
  const json one = dry_run(flags + "--schedule gpipe");
  const json other = dry_run(flags + "--schedule chimera");
  EXPECT_GT(one["step_seconds"].get<double>(), other["step_seconds"].get<double>());
  EXPECT_GT(one["bubble_ratio"].get<double>(), 1.1 * other["bubble_ratio"].get<double>());
  EXPECT_EQ(one, dry_run(flags + "--schedule gpipe")) << "nothing is measured";
}

TEST(DryRunTest, TakesEveryKindOfRun) {
  for (const Words flags : {"--schedule none --micro-batches 2", "--schedule pipedream --stages 2",
                            "--schedule zb-v --stages 2 --micro-batches 4 --tied true",
                            "--schedule chimera --stages 2 --reduction canonical --recompute full",
                            "--schedule zb-h1 --stages 2 --recompute attention",
                            "--model bert-tiny --schedule 1f1b --stages 2 --shard-optimizer --dtype float64"}) {
    const json run = dry_run("--model gpt2-tiny" + flags);
    EXPECT_GT(run["step_seconds"].get<double>(), 0) << flags[1];
  }
}

/// A profile of a machine with `cores` cores.
std::string machine_of(int cores, const Scratch& scratch) {
  std::ifstream file(testing::source_path("/machines/h200.json"));
  json machine = json::parse(file);
  machine["cores"] = cores;
  return scratch.write("machine.json", json_text(machine));
}

TEST(DryRunTest, PairsSaveTimeIfThereAreEnoughCores) {
  const Scratch scratch;
  const auto seconds = [&](int cores, const Words& pairs) {
    return dry_run(split("--model gpt2-tiny --schedule dualpipev --stages 2 --micro-batches 8 --machine {}",
                         machine_of(cores, scratch)) +
                   pairs)["step_seconds"]
        .get<double>();
  };
  const Words together = {"--overlap-pairs"};
  EXPECT_LT(seconds(64, together), 0.9 * seconds(64, {}));
  EXPECT_GT(seconds(2, together), 0.95 * seconds(2, {})) << "a core for each rank";
  EXPECT_GT(seconds(1, together), 0.95 * seconds(1, {})) << "half a core for each rank";
}

TEST(DryRunTest, TextHasALineForEveryRankAndStage) {
  const std::string result = output_of("train --dry-run --model gpt2-tiny --stages 2 --micro-batches 2");
  EXPECT_THAT(result, HasSubstr("dry run, nothing is started: gpt2-tiny"));
  EXPECT_THAT(result, HasSubstr("bubble ratio"));
  EXPECT_THAT(result, ::testing::ContainsRegex("    1     0      1  1, 0 +[0-9]+"));
}

TEST(DryRunTest, ShowsWhatARankTakesOfItsGpu) {
  const Words flags = "--model gpt2-tiny --stages 4 --micro-batches 4 --data-parallel 2 --device cuda";
  const json gpu = dry_run(flags)["gpu"];
  EXPECT_EQ(gpu["communicators"], 4 + 2 + 1) << "two neighbors in both directions, two stages";
  EXPECT_EQ(gpu["most_communicators"], 31);
  EXPECT_EQ(gpu["receives_ahead"], 1);
  EXPECT_LE(gpu["held_multiprocessors"], gpu["most_held_multiprocessors"]);
  EXPECT_EQ(gpu["most_held_multiprocessors"], gpu["multiprocessors"].get<int>() / 2);

  EXPECT_THAT(output_of("train --dry-run" + flags),
              HasSubstr("a rank has 7 communicators at most, of 31: 4 for messages, 2 for sums"));
  EXPECT_FALSE(dry_run("--model gpt2-tiny --stages 2").contains("gpu"));
  EXPECT_EQ(dry_run(flags + "--tensor-parallel 2")["gpu"]["sum_communicators"], 3)
      << "two stages, and the ranks that share layers";
}

TEST(DryRunTest, RefusesMoreCommunicatorsThanARankCanHave) {
  const ProgramResult result = run_program(
      "train --dry-run --device cuda --model gpt2-tiny --layers 60 --schedule interleaved-1f1b --stages 2 --chunks 30 "
      "--micro-batches 2 --data-parallel 2");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.output, "");
  EXPECT_THAT(result.messages, HasSubstr("communicators"));
  EXPECT_THAT(result.messages, HasSubstr("more than"));
}

TEST(DryRunTest, ForecastsManyStages) {
  const json run = dry_run("--model gpt2-tiny --layers 128 --stages 128 --micro-batches 128 --machine h100-80gb");
  EXPECT_EQ(run["ranks"].size(), 128U);
}

TEST(DryRunTest, HasNoLimitOfOneMachine) {
  const json run = dry_run("--model gpt2-tiny --stages 4 --data-parallel 1024 --device cuda");
  EXPECT_EQ(run["ranks"].size(), 4096U);
  EXPECT_EQ(run["gpu"]["communicators"], 4 + 2 + 1) << "as with two groups";
}

TEST(DryRunTest, EndsAsTheRunWould) {
  const auto ends = [](const Words& flags) {
    const ProgramResult result = run_program("train --dry-run --model gpt2-tiny" + flags);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.output, HasSubstr("dry run, nothing is started"));
    return result.messages;
  };
  EXPECT_THAT(ends("--memory 0.0004"), HasSubstr("DOES NOT FIT: a rank needs"));
  const std::string groups = std::to_string(17 * available_cores());
  EXPECT_THAT(ends(split("--schedule 1f1b --stages 1 --data-parallel {}", groups)), HasSubstr("more than 16 a core"));
}

TEST(TrainingDryRunTest, HasTheRatesOfTheSavedRun) {
  const Scratch scratch;
  const Words run = small_training(scratch) + split("--schedule none --checkpoint {}", scratch.path("run"));
  ASSERT_EQ(run_program(run + "--steps 2 --learning-rate 0.02 --warmup 1").exit_code, 0);
  const ProgramResult result = run_program(run + "--steps 9 --resume auto --dry-run");
  EXPECT_THAT(result.output, HasSubstr("learning rate: 0.02, 1 step of warm-up"));
}

TEST(DryRunTest, RejectsWhatTrainingRejects) {
  const auto refused = [](const Words& flags) {
    const ProgramResult result = run_program(Words{"train"} + flags);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.output, "");
    return result.messages;
  };
  EXPECT_THAT(refused("--dry-run --schedule chimera --stages 3"), HasSubstr("--stages must be even"));
  EXPECT_THAT(refused("--dry-run --machine /no/such.json"), HasSubstr("/no/such.json"));
  EXPECT_THAT(refused("--format json"), HasSubstr("--format is for --dry-run"));
}

}  // namespace
}  // namespace chimera::testing
